// Types of preact.js: the parts of Preact, its hooks, signals and htm that the page uses.

export type Key = string | number;
export interface VNode {
  type: unknown;
  props: Record<string, unknown>;
  key: Key | null | undefined;
}
/** What may be a child: null, undefined and booleans show nothing. */
export type Child = VNode | string | number | bigint | boolean | null | undefined | ReadonlySignal<any> | Child[];
export interface Attributes {
  key?: Key;
  ref?: RefObject<any> | ((node: any) => void) | null;
  children?: Child;
}
export type FunctionComponent<P = {}> = (props: P & Attributes) => Child;

export function h(type: any, props: object | null, ...children: Child[]): VNode;
export function render(child: Child, parent: Element | DocumentFragment | ShadowRoot): void;
export function Fragment(props: { children?: Child }): Child;
export abstract class Component<P = {}, S = {}> {
  constructor(props?: P);
  props: Readonly<P & Attributes>;
  state: Readonly<S>;
  base?: Element;
  setState(state: Partial<S> | ((before: Readonly<S>, props: Readonly<P>) => Partial<S> | null), done?: () => void): void;
  forceUpdate(done?: () => void): void;
  componentDidMount?(): void;
  componentWillUnmount?(): void;
  componentDidUpdate?(propsBefore: Readonly<P>, stateBefore: Readonly<S>, snapshot: any): void;
  shouldComponentUpdate?(props: Readonly<P>, state: Readonly<S>): boolean;
  componentDidCatch?(error: any, info: any): void;
  abstract render(props?: Readonly<P & Attributes>, state?: Readonly<S>): Child;
}

/** Tagged template: html`<p class=${name}>${text}</p>`. */
export function html(parts: TemplateStringsArray, ...values: any[]): VNode;

export interface RefObject<T> {
  current: T;
}
export type Cleanup = void | (() => void);
export type SetState<T> = (value: T | ((before: T) => T)) => void;
export function useState<T>(first: T | (() => T)): [T, SetState<T>];
export function useState<T = undefined>(): [T | undefined, SetState<T | undefined>];
export function useRef<T>(first: T): RefObject<T>;
export function useRef<T>(first: T | null): RefObject<T | null>;
export function useRef<T = undefined>(): RefObject<T | undefined>;
export function useEffect(run: () => Cleanup, inputs?: readonly unknown[]): void;
export function useLayoutEffect(run: () => Cleanup, inputs?: readonly unknown[]): void;
export function useMemo<T>(make: () => T, inputs: readonly unknown[] | undefined): T;
export function useCallback<T extends Function>(callback: T, inputs: readonly unknown[]): T;
export function useId(): string;

export interface ReadonlySignal<T = any> {
  readonly value: T;
  peek(): T;
  subscribe(run: (value: T) => void): () => void;
  toString(): string;
  toJSON(): T;
}
export interface Signal<T = any> extends ReadonlySignal<T> {
  value: T;
}
export function signal<T>(value: T): Signal<T>;
export function signal<T = undefined>(): Signal<T | undefined>;
export function computed<T>(make: () => T): ReadonlySignal<T>;
export function effect(run: () => Cleanup): () => void;
export function batch<T>(run: () => T): T;
export function untracked<T>(run: () => T): T;
export function useSignal<T>(value: T): Signal<T>;
export function useSignal<T = undefined>(): Signal<T | undefined>;
export function useComputed<T>(make: () => T): ReadonlySignal<T>;
export function useSignalEffect(run: () => Cleanup): void;
