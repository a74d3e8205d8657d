const CONFIG = { a: '\x41\u00e4\u{1F600}\ud83d\ude00\0\'' };
module.exports = exports = { execute, CONFIG, __version__: '1' };
exports.__timeout__ = 5;
