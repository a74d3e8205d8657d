// Types of what the console uses from preact-htm.js.
export type Child = unknown;
export function html(strings: TemplateStringsArray, ...values: unknown[]): any;
export function render(tree: unknown, parent: Element): void;
export function useState<T>(initial: T | (() => T)): [T, (next: T | ((old: T) => T)) => void];
export function useReducer<S, A>(reduce: (state: S, action: A) => S, initial: S): [S, (action: A) => void];
export function useEffect(effect: () => void | (() => void), inputs?: unknown[]): void;
export function useLayoutEffect(effect: () => void | (() => void), inputs?: unknown[]): void;
export function useRef<T>(initial: T): { current: T };
export function useMemo<T>(compute: () => T, inputs: unknown[]): T;
export function useCallback<T extends Function>(callback: T, inputs: unknown[]): T;
export function createContext<T>(initial: T): { Provider: any };
export function useContext<T>(context: { Provider: any }): T;
