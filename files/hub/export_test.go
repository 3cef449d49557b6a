package hub

// The tests from outside the package use these names.
var (
	ErrIntegrity = errIntegrity
	ErrNoToken   = errNoToken
	ErrProtocol  = errProtocol
)
