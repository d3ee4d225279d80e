-- The same GET again and again, counted as events are.
dofile(debug.getinfo(1, "S").source:match("^@(.*/)") .. "events.lua")
setup, init, request = nil, nil, nil
