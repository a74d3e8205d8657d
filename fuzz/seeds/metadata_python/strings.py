__sandbox__ = ['a' "b", r'\n', u'\x41\u00e4\U0001F600\101\N{BULLET}', """x
y""", b'z', f'{x}']
