/** The parts of markdown-it that markdown/parser.js uses. */
export class Token {
  constructor(type: string, tag: string, nesting: -1 | 0 | 1);
  type: string;
  tag: string;
  attrs: [string, string][] | null;
  map: [number, number] | null;
  nesting: -1 | 0 | 1;
  level: number;
  children: Token[] | null;
  content: string;
  markup: string;
  info: string;
  hidden: boolean;
  attrGet(name: string): string | null;
}
export interface Delimiter {
  marker: number;
  length: number;
  token: number;
  end: number;
  open: boolean;
  close: boolean;
}
export interface StateBlock {
  src: string;
  md: any;
  env: any;
  tokens: Token[];
  bMarks: number[];
  eMarks: number[];
  tShift: number[];
  sCount: number[];
  blkIndent: number;
  line: number;
  lineMax: number;
  parentType: string;
  push(type: string, tag: string, nesting: -1 | 0 | 1): Token;
  getLines(begin: number, end: number, indent: number, keepLastLF: boolean): string;
}
export interface StateInline {
  src: string;
  md: any;
  env: any;
  tokens: Token[];
  tokens_meta: ({ delimiters: Delimiter[] } | null)[];
  pos: number;
  posMax: number;
  level: number;
  linkLevel: number;
  pending: string;
  delimiters: Delimiter[];
  push(type: string, tag: string, nesting: -1 | 0 | 1): Token;
  scanDelims(start: number, canSplitWord: boolean): { can_open: boolean; can_close: boolean; length: number };
}
export type BlockRule = (state: StateBlock, startLine: number, endLine: number, silent: boolean) => boolean;
export type InlineRule = (state: StateInline, silent: boolean) => boolean;
export interface Ruler<Rule> {
  at(name: string, rule: Rule): void;
  before(name: string, added: string, rule: Rule, options?: { alt: string[] }): void;
  push(name: string, rule: Rule): void;
}
export class ParserBlock {
  ruler: Ruler<BlockRule>;
  parse(src: string, md: any, env: any, tokens: Token[]): void;
}
export class ParserInline {
  ruler: Ruler<InlineRule>;
  ruler2: Ruler<(state: StateInline) => void>;
  parse(src: string, md: any, env: any, tokens: Token[]): void;
}
export const helpers: any;
export function unescapeAll(text: string): string;
export function addEntities(more: Record<string, string>): void;
