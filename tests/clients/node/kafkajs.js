// A KafkaJS client for tests: see tests/support/foreign_clients.py.

const { CompressionTypes, ConfigResourceTypes, Kafka, Partitioners, logLevel } = require('kafkajs')

const LIMIT_MS = 120000
const COMMIT_EVERY = 50

const value = i => `record ${i} of a numbered row, padded a little`
const say = what => process.stdout.write(JSON.stringify(what) + '\n')

function kafka(servers) {
  return new Kafka({ clientId: 'tests', brokers: servers.split(','), logLevel: logLevel.NOTHING })
}

// Not idempotent, which the library calls experimental: one request at a time keeps the order.
// A send is for one partition: of a send to several, the library drops what a broker came to lead
// that had answered it before.
async function write(servers, topic, partitions, count, codec) {
  const compression = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP }[codec]
  const producer = kafka(servers).producer({
    createPartitioner: Partitioners.DefaultPartitioner,
    maxInFlightRequests: 1,
  })
  await producer.connect()
  for (let start = 0; start < count; start += 1000) {
    for (let partition = 0; partition < partitions; partition++) {
      const messages = []
      for (let i = start; i < Math.min(count, start + 1000); i++) {
        if (i % partitions === partition) messages.push({ partition, value: value(i) })
      }
      await producer.send({ topic, messages, compression, acks: -1 })
    }
  }
  await producer.disconnect()
}

// The library reads in groups only: one of its own.
async function read(servers, topic, partitions, count) {
  const consumer = kafka(servers).consumer({ groupId: `read-${topic}` })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  let seen = 0
  const lines = []
  await new Promise((done, failed) => {
    const timer = setTimeout(() => failed(new Error(`only ${seen} of ${count} came`)), LIMIT_MS)
    consumer.on(consumer.events.CRASH, event => failed(event.payload.error))
    consumer
      .run({
        eachMessage: async ({ partition, message }) => {
          lines.push(`${partition} ${message.offset} ${message.value}\n`)
          seen += 1
          if (seen === count) {
            clearTimeout(timer)
            done()
          }
        },
      })
      .catch(failed)
  })
  await consumer.disconnect()
  process.stdout.write(lines.join(''))
}

async function admin(servers, topic) {
  const client = kafka(servers).admin({ retry: { retries: 2 } })
  await client.connect()
  const refused = async call => {
    try {
      await call
      return ''
    } catch (error) {
      const known = error.cause || (error.errors && error.errors[0]) || error
      return known.type || String(error)
    }
  }
  const cluster = await client.describeCluster()
  const asked = { topic, numPartitions: 2, replicationFactor: 3 }
  await client.createTopics({
    topics: [{ ...asked, configEntries: [{ name: 'retention.ms', value: '100000' }] }],
  })
  // The library answers false where others throw.
  const again = (await client.createTopics({ topics: [asked] })) ? '' : 'TOPIC_ALREADY_EXISTS'
  const wide = await refused(
    client.createTopics({ topics: [{ topic: `${topic}-wide`, numPartitions: 1, replicationFactor: 9 }] })
  )
  await client.createPartitions({ topicPartitions: [{ topic, count: 5 }] })
  // The older of the two calls: it replaces the whole configuration.
  await client.alterConfigs({
    resources: [
      {
        type: ConfigResourceTypes.TOPIC,
        name: topic,
        configEntries: [{ name: 'max.message.bytes', value: '12345' }],
      },
    ],
  })
  // What was answered is committed; brokers hear of it a moment later.
  const limit = Date.now() + LIMIT_MS
  let configs = {}
  while (configs['max.message.bytes'] !== '12345' && Date.now() < limit) {
    const told = await client.describeConfigs({
      includeSynonyms: false,
      resources: [{ type: ConfigResourceTypes.TOPIC, name: topic }],
    })
    configs = Object.fromEntries(
      told.resources[0].configEntries.map(one => [one.configName, one.configValue])
    )
  }
  let partitions = 0
  while (partitions !== 5 && Date.now() < limit) {
    const told = await client.fetchTopicMetadata({ topics: [topic] })
    partitions = told.topics[0].partitions.length
  }
  await client.deleteTopics({ topics: [topic] })
  const gone = await refused(client.deleteTopics({ topics: [topic] }))
  await client.disconnect()
  say({
    cluster: cluster.clusterId,
    brokers: cluster.brokers.map(one => one.nodeId),
    again,
    wide,
    partitions,
    retention: configs['retention.ms'],
    bytes: configs['max.message.bytes'],
    gone,
  })
}

async function member(servers, group, topic) {
  const consumer = kafka(servers).consumer({
    groupId: group,
    sessionTimeout: 6000,
    heartbeatInterval: 500,
  })
  consumer.on(consumer.events.GROUP_JOIN, event => {
    say({ owns: event.payload.memberAssignment[topic] || [] })
  })
  consumer.on(consumer.events.REBALANCING, () => say({ owns: [] }))
  consumer.on(consumer.events.CRASH, event => say({ error: event.payload.error.type || String(event.payload.error) }))
  process.on('SIGTERM', async () => {
    await consumer.disconnect()
    process.exit(0)
  })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({
    autoCommit: true,
    autoCommitThreshold: COMMIT_EVERY,
    autoCommitInterval: 200,
    eachMessage: async ({ partition, message }) => {
      say({ got: [[partition, Number(message.offset), String(message.value)]] })
    },
  })
}

async function main() {
  const [command, servers, ...rest] = process.argv.slice(2)
  const [topic, partitions, count] = [rest[0], Number(rest[1]), Number(rest[2])]
  if (command === 'write') await write(servers, topic, partitions, count, rest[3])
  if (command === 'read') await read(servers, topic, partitions, count)
  if (command === 'admin') await admin(servers, topic)
  if (command === 'member') await member(servers, rest[0], rest[1])
}

main().catch(error => {
  process.stderr.write(`${error.stack}\n`)
  process.exit(1)
})
