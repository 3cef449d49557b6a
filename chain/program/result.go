package program

import (
	"fmt"

	"github.com/psyche-go/psyche/core/coordinator"
)

// Code is a custom error of the program that is no coordinator.Code: a refusal of the host's own.
type Code uint32

// The codes.
const (
	ErrOtherVersion Code = 256 + iota // the account is of a version that this program only frees
	ErrNoMigration                    // this program cannot bring an account from its version to that one
)

// Error returns the reason in words.
func (c Code) Error() string {
	switch c {
	case ErrOtherVersion:
		return "the account and the program have different versions; free the account, or migrate it while the run is paused"
	case ErrNoMigration:
		return "the program knows no migration of this account to that version"
	}
	return fmt.Sprintf("unknown error %d of the program", uint32(c))
}

// Builtin is an error that every program of the chain may return, by its number there.
type Builtin uint32

// Those that the program returns.
const (
	ErrInvalidArgument           Builtin = 2  // an account too many, or one twice
	ErrInvalidInstructionData    Builtin = 3  // bytes that are no instruction, or staged bytes that are not those named
	ErrInvalidAccountData        Builtin = 4  // an account of another kind or size
	ErrMissingRequiredSignature  Builtin = 8  // the key that acts did not sign
	ErrAccountAlreadyInitialized Builtin = 9  // INIT or GENESIS for the second time
	ErrUninitializedAccount      Builtin = 10 // the run has not begun, or the account is new
	ErrNotEnoughAccountKeys      Builtin = 11 // an account is missing
	ErrInvalidSeeds              Builtin = 14 // the account is not at the address that its run or owner has
	ErrUnsupportedSysvar         Builtin = 17 // the chain has no clock or no hashes of slots
	ErrInvalidAccountOwner       Builtin = 23 // the account is not the program's
	ErrImmutable                 Builtin = 25 // an account that has to be writable is not
	ErrIncorrectAuthority        Builtin = 26 // signed by another key than the account's
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
	ErrUnsupportedSysvar:         "UnsupportedSysvar",
	ErrInvalidAccountOwner:       "InvalidAccountOwner",
	ErrImmutable:                 "Immutable",
	ErrIncorrectAuthority:        "IncorrectAuthority",
}

var builtinTexts = map[Builtin]string{
	ErrInvalidArgument:           "an account too many, or the same one twice",
	ErrInvalidInstructionData:    "not an instruction of the program, or staged bytes that do not match the instruction",
	ErrInvalidAccountData:        "an account of another kind, or of another size",
	ErrMissingRequiredSignature:  "the signature of the account that acts is missing",
	ErrAccountAlreadyInitialized: "the account is in use already",
	ErrUninitializedAccount:      "the run has not begun",
	ErrNotEnoughAccountKeys:      "an account is missing",
	ErrInvalidSeeds:              "the account is not at the address of its run or its owner",
	ErrUnsupportedSysvar:         "the chain has no clock or no hashes of slots",
	ErrInvalidAccountOwner:       "the account is not the program's",
	ErrImmutable:                 "an account that has to be writable is read-only",
	ErrIncorrectAuthority:        "signed by another key than the account's",
}

// Name returns the error's name in the chain's JSON-RPC interface.
func (b Builtin) Name() string { return builtinNames[b] }

// Error returns the reason in words.
func (b Builtin) Error() string {
	text, ok := builtinTexts[b]
	if !ok {
		return fmt.Sprintf("error %d that the program never returns", uint32(b))
	}
	return fmt.Sprintf("%s (%s)", text, builtinNames[b])
}

// CustomError returns what a custom error of the program means: a coordinator.Code where the rules
// of the run refuse, else a Code.
func CustomError(code uint32) error {
	if c := coordinator.Code(code); code <= 0xff && c.Valid() {
		return c
	}
	return Code(code)
}

// BuiltinError returns the error of that name in the chain's JSON-RPC interface, if it is one that
// the program returns.
func BuiltinError(name string) (Builtin, bool) {
	for b, known := range builtinNames {
		if known == name {
			return b, true
		}
	}
	return 0, false
}
