export default function (pi: any) {
  pi.registerCommand("goto", { description: "Go to an entry", handler: async (args: string, ctx: any) => {
    await ctx.waitForIdle();
    const [id, how] = args.trim().split(" ");
    await ctx.navigateTree(id, { summarize: how === "summary" });
  }});
}
