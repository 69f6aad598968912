/** The code with a span for each coloured part; null if the language is not known. */
export function colour(code: string, language: string): DocumentFragment | null;
