package coordinator

import "strconv"

// Code is the reason why an action, a configuration or an encoding was refused. It is an error,
// fits into one byte on the wire, and never changes its number.
type Code uint8

// Reasons for a refusal.
const (
	ErrHalted          Code = iota + 1 // the run is finished, or paused for this action
	ErrWrongState                      // the current RunState does not allow the action
	ErrWrongEpoch                      // the action names another epoch
	ErrWrongStep                       // the action names another step
	ErrNotMember                       // the sender, or a client that the action names, is not a healthy member
	ErrNotElected                      // the sender does not witness this round, is on no jury, or may not accuse
	ErrNotAuthorised                   // the sender's key may not do this
	ErrDuplicate                       // the action was already applied
	ErrStaleNonce                      // the nonce is not above the sender's last one
	ErrFull                            // no capacity left
	ErrFalseAccusation                 // a client named in a health check is healthy
	ErrInvalidWitness                  // the filters contain more than the round's items
	ErrInvalidAction                   // the action is malformed or contradicts itself
	ErrInvalidConfig                   // see ConfigError
	ErrMalformed                       // see decodeError
	ErrPermissionless                  // the run admits all keys: there is nothing to authorize
	ErrWrongNumber                     // the action names an authorization that is not the sender's current one
	ErrUnrecorded                      // the run did not record this checkpoint, or has forgotten it
	codeEnd
)

var codeTexts = [...]string{
	ErrHalted:          "run is halted",
	ErrWrongState:      "not in this state of the run",
	ErrWrongEpoch:      "action is for another epoch",
	ErrWrongStep:       "action is for another step",
	ErrNotMember:       "not a healthy member of the epoch",
	ErrNotElected:      "not elected or drawn for this",
	ErrNotAuthorised:   "not authorised",
	ErrDuplicate:       "already done",
	ErrStaleNonce:      "nonce is not above the last one",
	ErrFull:            "run is full",
	ErrFalseAccusation: "accused client is healthy",
	ErrInvalidWitness:  "witness claims more than the round has",
	ErrInvalidAction:   "invalid action",
	ErrInvalidConfig:   "invalid configuration",
	ErrMalformed:       "malformed state",
	ErrPermissionless:  "run is permissionless",
	ErrWrongNumber:     "not the number of the present authorization",
	ErrUnrecorded:      "no checkpoint that the run recorded lately",
}

// Valid reports whether c is one of the codes above. A byte from the network may be another value.
func (c Code) Valid() bool { return c > 0 && c < codeEnd }

// Error returns the reason in words.
func (c Code) Error() string {
	if !c.Valid() {
		return "unknown coordinator error"
	}
	return codeTexts[c]
}

// ConfigError names an invalid key of a run's configuration and describes the problem. It wraps
// ErrInvalidConfig.
type ConfigError struct {
	Key     string // name in state.toml
	Problem string
}

// Error returns the key and the problem.
func (e *ConfigError) Error() string { return e.Key + " " + e.Problem }

// Unwrap returns ErrInvalidConfig.
func (e *ConfigError) Unwrap() error { return ErrInvalidConfig }

var runStateNames = [...]string{
	Uninitialized:     "Uninitialized",
	WaitingForMembers: "WaitingForMembers",
	Warmup:            "Warmup",
	RoundTrain:        "RoundTrain",
	RoundWitness:      "RoundWitness",
	Cooldown:          "Cooldown",
	Finished:          "Finished",
	Paused:            "Paused",
}

// String returns the state's name.
func (r RunState) String() string {
	if int(r) >= len(runStateNames) {
		return "RunState?"
	}
	return runStateNames[r]
}

var clientStateNames = [...]string{
	Healthy:   "Healthy",
	Dropped:   "Dropped",
	Withdrawn: "Withdrawn",
	Ejected:   "Ejected",
}

// String returns the state's name.
func (c ClientState) String() string {
	if int(c) >= len(clientStateNames) {
		return "ClientState?"
	}
	return clientStateNames[c]
}

var ejectionReasonNames = [...]string{
	ByAuthority:    "by the main authority",
	TwoResults:     "it signed two results",
	FoundGuilty:    "a jury found it guilty",
	AccusedWrongly: "it made a false accusation",
}

// String returns the reason in words.
func (r EjectionReason) String() string {
	if int(r) >= len(ejectionReasonNames) {
		return "EjectionReason?"
	}
	return ejectionReasonNames[r]
}

var checkpointKindNames = [...]string{
	CheckpointHub:    "Hub",
	CheckpointP2P:    "P2P",
	CheckpointGcs:    "Gcs",
	CheckpointP2PGcs: "P2PGcs",
	CheckpointLocal:  "Local",
	CheckpointDummy:  "Dummy",
}

// String returns the kind's name.
func (k CheckpointKind) String() string {
	if k == 0 || int(k) >= len(checkpointKindNames) {
		return "CheckpointKind?"
	}
	return checkpointKindNames[k]
}

var faultNames = [...]string{
	FaultResult: "wrong result",
	FaultSilent: "opens to nobody",
}

// String returns the fault in words.
func (f Fault) String() string {
	if i, ok := f.Part(); ok {
		return "part " + strconv.Itoa(i+1) + " false or missing"
	}
	if f == 0 || int(f) >= len(faultNames) {
		return "Fault?"
	}
	return faultNames[f]
}
