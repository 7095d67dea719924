// Plays a script with @platformatic/kafka: one JSON object on standard input, one line of JSON on standard output for each step.
//
// { "client": { options of every client: bootstrapBrokers, clientId, sasl, tls, ... }, "steps": [ { "do": "produce", ... }, ... ] }
// A step that fails is a line with "error"; the next one still runs. The exit code is 0 when the script ran to its end.
import { Admin, Consumer, Producer } from '@platformatic/kafka'

const steps = {
  // With "seconds" it ends after that time, even before "count" is reached.
  async produce ({ topic, count, bytes, batch = count, acks = -1, seconds = Infinity, options = {} }, client) {
    const producer = new Producer({ ...client, ...options })
    const slowest = { ms: 0 }
    const end = performance.now() + seconds * 1000
    let sent = 0
    try {
      for (; sent < count && performance.now() < end; sent += batch) {
        const messages = Array.from({ length: Math.min(batch, count - sent) }, (_, at) => ({
          topic, partition: 0, value: Buffer.alloc(bytes, (sent + at) % 251)
        }))
        const began = performance.now()
        await producer.send({ messages, acks })
        slowest.ms = Math.max(slowest.ms, performance.now() - began)
      }
    } finally {
      await producer.close()
    }
    return { produced: Math.min(sent, count), slowest_ms: Math.round(slowest.ms) }
  },

  async consume ({ topic, count, group, options = {} }, client) {
    const consumer = new Consumer({ ...client, groupId: group, maxWaitTime: 500, ...options })
    let received = 0
    let bytes = 0
    let ordered = true
    try {
      const stream = await consumer.consume({ topics: [topic], mode: 'earliest', autocommit: false })
      for await (const message of stream) {
        ordered &&= message.value[0] === received % 251
        bytes += message.value.length
        received += 1
        if (received >= count) break
      }
    } finally {
      await consumer.close(true)
    }
    return { consumed: received, bytes, ordered }
  },

  async describe_quotas ({ components, strict = false }, client) {
    return withAdmin(client, async admin => ({ entries: await admin.describeClientQuotas({ components, strict }) }))
  },

  async alter_quotas ({ entries, validate_only: validateOnly = false }, client) {
    return withAdmin(client, async admin => ({ entries: await admin.alterClientQuotas({ entries, validateOnly }) }))
  },

  async create_topic ({ topic, partitions = 1 }, client) {
    return withAdmin(client, async admin => ({ topics: await admin.createTopics({ topics: [topic], partitions, replicas: 1 }) }))
  }
}

async function withAdmin (client, work) {
  const admin = new Admin(client)
  try {
    return await work(admin)
  } finally {
    await admin.close()
  }
}

function shown (error) {
  const inner = error.errors ?? (error.cause === undefined ? [] : [error.cause])
  return { name: error.constructor.name, code: error.code, api: error.apiId, message: error.message, errors: inner.map(shown) }
}

function tell (line) {
  process.stdout.write(JSON.stringify(line, (_, value) => typeof value === 'bigint' ? Number(value) : value) + '\n')
}

const chunks = []
for await (const chunk of process.stdin) chunks.push(chunk)
const script = JSON.parse(Buffer.concat(chunks).toString())
for (const [at, step] of script.steps.entries()) {
  const began = performance.now()
  let outcome
  try {
    outcome = await steps[step.do]({ ...step }, script.client)
  } catch (error) {
    outcome = { error: shown(error) }
  }
  tell({ step: at, do: step.do, elapsed_ms: Math.round(performance.now() - began), ...outcome })
}
process.exit(0)
