package program

import (
	"fmt"

	"github.com/psyche-go/psyche/core/coordinator"
)

// Code is a custom error that the program's host part returns. It is not a coordinator.Code.
type Code uint32

// The codes.
const (
	ErrOtherVersion Code = 256 + iota // this program can only free accounts of this version
	ErrNoMigration                    // this program has no migration from the account's version to the given one
	ErrGrant                          // the grant does not cover the key, or still covers a key whose admission should end
)

// Error describes the reason.
func (c Code) Error() string {
	switch c {
	case ErrOtherVersion:
		return "the account and the program have different versions; free the account, or migrate it while the run is paused"
	case ErrNoMigration:
		return "the program cannot migrate this account to its version"
	case ErrGrant:
		return "the grant does not cover the key, or still covers it if its admission should end"
	}
	return fmt.Sprintf("unknown error %d of the program", uint32(c))
}

// Builtin is a standard error of programs on the chain, by its number.
type Builtin uint32

// The standard errors that the program returns.
const (
	ErrInvalidArgument           Builtin = 2  // too many accounts, or a duplicate account
	ErrInvalidInstructionData    Builtin = 3  // not an instruction, or staged bytes with a different hash
	ErrInvalidAccountData        Builtin = 4  // wrong kind or size of account
	ErrMissingRequiredSignature  Builtin = 8  // the acting key did not sign
	ErrAccountAlreadyInitialized Builtin = 9  // a second INIT or GENESIS
	ErrUninitializedAccount      Builtin = 10 // the run has no genesis, or the account is new
	ErrNotEnoughAccountKeys      Builtin = 11 // an account is missing
	ErrInvalidSeeds              Builtin = 14 // the account is not at the address for its run, owner or grantee
	errUnsupportedSysvar         Builtin = 17 // the chain has no clock or no hashes of slots
	ErrInvalidAccountOwner       Builtin = 23 // the program does not own the account
	ErrImmutable                 Builtin = 25 // an account that must be writable is read-only
	ErrIncorrectAuthority        Builtin = 26 // signed by a different key than the account's
)

var builtinNames = map[Builtin]string{
	ErrInvalidArgument:           "InvalidArgument",
	ErrInvalidInstructionData:    "InvalidInstructionData",
	ErrInvalidAccountData:        "InvalidAccountData",
	ErrMissingRequiredSignature:  "MissingRequiredSignature",
	ErrAccountAlreadyInitialized: "AccountAlreadyInitialized",
	ErrUninitializedAccount:      "UninitializedAccount",
	ErrNotEnoughAccountKeys:      "NotEnoughAccountKeys",
	ErrInvalidSeeds:              "InvalidSeeds",
	errUnsupportedSysvar:         "UnsupportedSysvar",
	ErrInvalidAccountOwner:       "InvalidAccountOwner",
	ErrImmutable:                 "Immutable",
	ErrIncorrectAuthority:        "IncorrectAuthority",
}

var builtinTexts = map[Builtin]string{
	ErrInvalidArgument:           "too many accounts, or the same account twice",
	ErrInvalidInstructionData:    "not an instruction of the program, or staged bytes that do not match the instruction",
	ErrInvalidAccountData:        "an account of the wrong kind or size",
	ErrMissingRequiredSignature:  "the signature of the account that acts is missing",
	ErrAccountAlreadyInitialized: "the account is already in use",
	ErrUninitializedAccount:      "the run has not begun",
	ErrNotEnoughAccountKeys:      "an account is missing",
	ErrInvalidSeeds:              "the account is not at the address of its run or its owner",
	errUnsupportedSysvar:         "the chain has no clock or no hashes of slots",
	ErrInvalidAccountOwner:       "the account is not the program's",
	ErrImmutable:                 "an account that must be writable is read-only",
	ErrIncorrectAuthority:        "signed by a different key than the account's",
}

// Error describes the reason.
func (b Builtin) Error() string {
	text, ok := builtinTexts[b]
	if !ok {
		return fmt.Sprintf("unknown error %d, which the program never returns", uint32(b))
	}
	return fmt.Sprintf("%s (%s)", text, builtinNames[b])
}

// CustomError returns the meaning of a custom error of the program: a coordinator.Code if the rules
// of the run refuse an action, else a Code.
func CustomError(code uint32) error {
	if c := coordinator.Code(code); code <= 0xff && c.Valid() {
		return c
	}
	return Code(code)
}

// BuiltinError returns the error with a name of the chain's JSON-RPC interface. It reports false if
// the program does not return such an error.
func BuiltinError(name string) (Builtin, bool) {
	for b, known := range builtinNames {
		if known == name {
			return b, true
		}
	}
	return 0, false
}
