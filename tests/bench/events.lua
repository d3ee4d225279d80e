-- Events of each table in turn, with an id that no other event of any run has.
-- Arguments after `--`: the series (a number, another one for each run), how many tables there are, the sender's token,
-- the directory that the tables lie in, how many events a request has: one alone, or an array.

local bit = require("bit")

local threads = 0
local count = 0

function setup(thread)
  thread:set("thread_index", threads)
  threads = threads + 1
end

function init(args)
  series, tables, warehouse, size = tonumber(args[1]), tonumber(args[2]), args[4], tonumber(args[5])
  wrk.method = "POST"
  wrk.headers["Authorization"] = "Bearer " .. args[3]
  wrk.headers["Content-Type"] = "application/json"
end

local function event()
  count = count + 1
  -- A multiplication by an odd number modulo 2^32 meets each number once: ids as scattered as random ones, none twice.
  local scattered = bit.tohex(bit.tobit(count * 2654435761 % 4294967296))
  local name = string.format("t%d", count * 7919 % tables)
  return string.format(
    '{"namespace":["bench"],"name":"%s","event_id":"%s-%04x-4%03x-8000-%012x",' ..
    '"metadata_location":"%s/bench/%s/metadata/%05d-%s-0000-4000-8000-000000000000.metadata.json"}',
    name, scattered, series, thread_index, count, warehouse, name, count % 90000, scattered)
end

function request()
  if size == 1 then
    return wrk.format(nil, nil, nil, event())
  end
  local events = {}
  for place = 1, size do
    events[place] = event()
  end
  return wrk.format(nil, nil, nil, "[" .. table.concat(events, ",") .. "]")
end

function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    '\n{"answers":%d,"microseconds":%d,"refused":%d,"lost":%d,"p50":%d,"p99":%d}\n',
    summary.requests, summary.duration, errors.status,
    errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50), latency:percentile(99)))
end
