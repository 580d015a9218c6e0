// SPDX-License-Identifier: Apache-2.0
//
// A module for Lua as a shared library: the monotonic clock and a sleep, in seconds.
#include <lauxlib.h>
#include <lua.h>
#include <time.h>

static int now(lua_State *L) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    lua_pushnumber(L, (lua_Number)at.tv_sec + (lua_Number)at.tv_nsec / 1e9);
    return 1;
}

static int pause_for(lua_State *L) {
    lua_Number seconds = luaL_checknumber(L, 1);
    struct timespec time = {.tv_sec = (time_t)seconds};
    time.tv_nsec = (long)((seconds - (lua_Number)time.tv_sec) * 1e9);
    lua_pushboolean(L, nanosleep(&time, NULL) == 0);
    return 1;
}

int luaopen_clock(lua_State *L) {
    const luaL_Reg functions[] = {{"now", now}, {"sleep", pause_for}, {NULL, NULL}};
    luaL_newlib(L, functions);
    return 1;
}
