// rye:signed:x
import type { Schema } from './types';
export const __version__: string = '1' as const;
export const CONFIG = { a: [1, 2] as const, b: <number>3, c: 'x'! } as const satisfies Schema;
export interface ANCHOR { a: string }
export default async function execute<T>(params: T): Promise<void> {}
