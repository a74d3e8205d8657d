// What preact-htm.js contains. `cargo xtask console --vendor` rebuilds it.
import htm from 'htm';
import { h } from 'preact';

export { createContext, render } from 'preact';
export {
  useCallback,
  useContext,
  useEffect,
  useLayoutEffect,
  useMemo,
  useReducer,
  useRef,
  useState,
} from 'preact/hooks';
export const html = htm.bind(h);
