// Package admission keeps unknown clients from using up a server. Limiter bounds the connections that have not yet
// identified themselves or that have no part in a run. KeyLimits bounds the actions of a key. Turns bounds how many
// connections do something at the same time. Budget bounds the rate of all connections together. Limiter, Turns and
// Budget share between sites and networks. SeatNetwork returns the network that shares a bound on seats in a run.
package admission
