//! Turns of odd histories.
