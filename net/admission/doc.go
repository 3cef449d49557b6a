// Package admission limits the resources of a server that unknown clients can use. Limiter limits
// the number of connections of clients that have not yet identified themselves or that have no part
// in a run. KeyLimits limits the actions of a key. Turns limits how many connections may use a
// resource at the same time. Budget limits the rate of all connections together. Limiter, Turns and
// Budget share their capacity between sites and networks. SeatNetwork returns the network whose
// seats in a run are limited together.
package admission
