//! Stores of the engine.
