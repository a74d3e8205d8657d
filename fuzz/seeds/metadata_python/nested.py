try:
    CONFIG = {}
except ImportError:
    from x import CONFIG
if __name__ == "__main__":
    CONFIG += 1
a, __version__ = b = '1', '2'
