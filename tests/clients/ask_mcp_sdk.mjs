// MCP's TypeScript SDK: `URL KEY` of our server over HTTP. Prints what each feature gave, as one line of JSON.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [url, key] = process.argv.slice(2);
const headers = { Authorization: `Bearer ${key}` };
const client = new Client({ name: "test", version: "1" });
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
const { tools } = await client.listTools();
const answer = await client.callTool({ name: "ask", arguments: { prompt: "hello" } });
console.log(JSON.stringify({ tools: tools.map((each) => each.name), chat: answer.content[0].text }));
await client.close();
