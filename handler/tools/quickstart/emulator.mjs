// Uses the queues of the emulator with Azure's client for Node.js.
import assert from "node:assert/strict";
import { QueueClient, QueueServiceClient } from "@azure/storage-queue";

const service = QueueServiceClient.fromConnectionString(process.env.AzureWebJobsStorage);
const queue = service.getQueueClient("from-node");
assert.equal(await queue.exists(), false);
await queue.createIfNotExists();
await queue.createIfNotExists();

const text = `<&>"' é\n🙂`;
await queue.sendMessage(text, { messageTimeToLive: -1 });
const peeked = await queue.peekMessages({ numberOfMessages: 32 });
assert.deepEqual(peeked.peekedMessageItems.map((m) => m.messageText), [text]);

const first = (await queue.receiveMessages()).receivedMessageItems[0];
const { popReceipt } = await queue.updateMessage(first.messageId, first.popReceipt, "new", 0);
await assert.rejects(queue.deleteMessage(first.messageId, first.popReceipt), { code: "MessageNotFound" });
const second = (await queue.receiveMessages({ visibilityTimeout: 60 })).receivedMessageItems[0];
assert.equal(second.messageText, "new");
assert.notEqual(second.popReceipt, popReceipt);
await queue.deleteMessage(second.messageId, second.popReceipt);

const expiresOn = new Date(Date.now() + 3600e3);
const signed = new QueueClient(queue.generateSasUrl({ expiresOn, permissions: "a" }));
await signed.sendMessage("signed");
await assert.rejects(signed.receiveMessages(), { code: "AuthorizationPermissionMismatch" });
assert.equal((await queue.getProperties()).approximateMessagesCount, 1);

const names = [];
for await (const { name } of service.listQueues({ prefix: "from" })) {
	names.push(name);
}
assert.deepEqual(names, ["from-node"]);
