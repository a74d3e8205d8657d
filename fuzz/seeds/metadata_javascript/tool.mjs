#!/usr/bin/env node
// rye:signed:x
/**
 * Does it.
 * @executor_id rye/core/runtimes/node/node
 * @tags [a, b]
 */
export const __version__ = "1.0.0";
const CONFIG = { a: [1, -2.5, `x`, null, true,], 'b-c': { d: 0xff } };
export { CONFIG, y as CONFIG_SCHEMA };
