-- Pause a queue, or one task type of it (protocol 15). Turns see the mark; what runs goes on.
-- KEYS  the queue's keys (parts/prelude.lua)
-- ARGV  5 task type, '' for the queue
-- Returns  1 paused, 0 when it was already
--@include prelude
local task_type = ARGV[5]
if task_type == '' then return call('HSETNX', META, 'paused', integer(now)) end
local types = call('HGET', META, 'paused_types') or ';' -- each followed by ';'
if find(types, ';' .. task_type .. ';', 1, true) then return 0 end
call('HSET', META, 'paused_types', types .. task_type .. ';')
return 1
