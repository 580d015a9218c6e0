-- SPDX-License-Identifier: Apache-2.0

-- Prints what wrk measured as lines for the lab: `lab NAME NUMBER...`. Times are in us, as wrk keeps them.
function done(summary, latency, requests)
  local function line(...)
    io.write("lab ", string.format(...), "\n")
  end
  line("requests %.0f", summary.requests)
  line("duration %.0f", summary.duration)
  line("bytes %.0f", summary.bytes)
  for _, kind in ipairs({ "connect", "read", "write", "status", "timeout" }) do
    line("error_%s %.0f", kind, summary.errors[kind])
  end
  local distinct = #latency
  line("mean %.3f", distinct > 0 and latency.mean or 0)
  line("max %.0f", distinct > 0 and latency.max or 0)
  -- wrk finds the i-th distinct value by counting from 0 us on: all of them only where that takes about a second.
  if distinct > 0 and distinct * latency.max <= 3e9 then
    for i = 1, distinct do
      local value, count = latency(i)
      line("value %.0f %.0f", tonumber(value), tonumber(count))
    end
  elseif distinct > 0 then
    for i = 1, 999 do
      line("percentile %.4f %.0f", i / 10, latency:percentile(i / 10))
    end
    for i = 1, 99 do
      line("percentile %.4f %.0f", 99.9 + i / 1000, latency:percentile(99.9 + i / 1000))
    end
  end
  line("end %.0f", distinct)
end
