// Package admission keeps strangers from using up a server: Lobby bounds the connections that
// have not said yet who they are, or that are not part of a run, and KeyLimits how often a key may
// act.
package admission
