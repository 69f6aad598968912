declare const temml: {
  render(formula: string, node: HTMLElement, options: { displayMode: boolean; throwOnError: boolean; maxExpand: number }): void;
};
export default temml;
