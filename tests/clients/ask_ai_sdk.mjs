// The AI SDK against an OpenAI endpoint: `URL KEY`. Prints what each feature gave, as one line of JSON.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const [baseURL, apiKey] = process.argv.slice(2);
const provider = createOpenAICompatible({ name: "alipes", baseURL, apiKey, supportsStructuredOutputs: true });
const model = provider("alipes");
const now = tool({ description: "The time.", inputSchema: z.object({}), execute: async () => "noon" });
const ask = { model, maxRetries: 0, tools: { now }, stopWhen: stepCountIs(3) };
const found = { chat: (await generateText({ ...ask, prompt: "hello" })).text };
const streamed = streamText({ ...ask, prompt: "hello" });
found.stream = "";
for await (const piece of streamed.textStream) found.stream += piece;
found.tools = (await generateText({ ...ask, prompt: "time" })).text;
const output = Output.object({ schema: z.object({ name: z.string() }) });
const data = await generateText({ model, maxRetries: 0, prompt: "city", output, experimental_output: output });
found.data = (data.output ?? data.experimental_output).name;
console.log(JSON.stringify(found));
