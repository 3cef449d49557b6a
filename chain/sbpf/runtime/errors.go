package runtime

import "fmt"

// Error is the reason why an instruction fails, with the names of the chain's JSON-RPC interface.
type Error struct {
	Name string // such as InvalidArgument, or Custom
	Code uint32 // of a Custom error
}

// Custom returns an error with a number of the program's own.
func Custom(code uint32) Error { return Error{"Custom", code} }

func (e Error) Error() string {
	if e.Name == "Custom" {
		return fmt.Sprintf("custom program error: %#x", e.Code)
	}
	if text, found := texts[e.Name]; found {
		return text
	}
	return e.Name
}

// Errors of this package and of the chain's native programs.
var (
	ErrInvalidArgument        = Error{Name: "InvalidArgument"}
	ErrInvalidInstructionData = Error{Name: "InvalidInstructionData"}
	ErrInvalidAccountData     = Error{Name: "InvalidAccountData"}
	ErrAccountDataTooSmall    = Error{Name: "AccountDataTooSmall"}
	ErrInsufficientFunds      = Error{Name: "InsufficientFunds"}
	ErrMissingSignature       = Error{Name: "MissingRequiredSignature"}
	ErrAlreadyInitialized     = Error{Name: "AccountAlreadyInitialized"}
	errUnbalanced             = Error{Name: "UnbalancedInstruction"}
	errModifiedOwner          = Error{Name: "ModifiedProgramId"}
	errExternalLamports       = Error{Name: "ExternalAccountLamportSpend"}
	ErrExternalData           = Error{Name: "ExternalAccountDataModified"}
	ErrReadonlyLamports       = Error{Name: "ReadonlyLamportChange"}
	ErrReadonlyData           = Error{Name: "ReadonlyDataModified"}
	ErrMissingAccount         = Error{Name: "MissingAccount"}
	errInvalidError           = Error{Name: "InvalidError"}
	ErrUnsupportedProgram     = Error{Name: "UnsupportedProgramId"}
	ErrMaxSeedLength          = Error{Name: "MaxSeedLengthExceeded"}
	errInvalidRealloc         = Error{Name: "InvalidRealloc"}
	ErrBudget                 = Error{Name: "ComputationalBudgetExceeded"}
	errNotCompleted           = Error{Name: "ProgramFailedToComplete"}
	ErrImmutable              = Error{Name: "Immutable"}
	ErrIncorrectAuthority     = Error{Name: "IncorrectAuthority"}
	ErrArithmeticOverflow     = Error{Name: "ArithmeticOverflow"}
	ErrAccountNotExecutable   = Error{Name: "AccountNotExecutable"}
)

// texts are the texts of errors in the chain's logs.
var texts = map[string]string{
	"InvalidArgument":                        "invalid program argument",
	"InvalidInstructionData":                 "invalid instruction data",
	"InvalidAccountData":                     "invalid account data for instruction",
	"AccountDataTooSmall":                    "account data too small for instruction",
	"InsufficientFunds":                      "insufficient funds for instruction",
	"IncorrectProgramId":                     "incorrect program id for instruction",
	"MissingRequiredSignature":               "missing required signature for instruction",
	"AccountAlreadyInitialized":              "instruction requires an uninitialized account",
	"UninitializedAccount":                   "instruction requires an initialized account",
	"UnbalancedInstruction":                  "sum of account balances before and after instruction do not match",
	"ModifiedProgramId":                      "instruction illegally modified the program id of an account",
	"ExternalAccountLamportSpend":            "instruction spent from the balance of an account it does not own",
	"ExternalAccountDataModified":            "instruction modified data of an account it does not own",
	"ReadonlyLamportChange":                  "instruction changed the balance of a read-only account",
	"ReadonlyDataModified":                   "instruction modified data of a read-only account",
	"NotEnoughAccountKeys":                   "insufficient account keys for instruction",
	"AccountNotExecutable":                   "instruction expected an executable account",
	"MissingAccount":                         "An account required by the instruction is missing",
	"AccountBorrowFailed":                    "instruction tries to borrow reference for an account which is already borrowed",
	"InvalidError":                           "program returned invalid error code",
	"UnsupportedProgramId":                   "Unsupported program id",
	"MaxSeedLengthExceeded":                  "Length of the seed is too long for address generation",
	"InvalidSeeds":                           "Provided seeds do not result in a valid address",
	"InvalidRealloc":                         "Failed to reallocate account data",
	"ComputationalBudgetExceeded":            "Computational budget exceeded",
	"ProgramEnvironmentSetupFailure":         "Failed to create program execution environment",
	"ProgramFailedToComplete":                "Program failed to complete",
	"Immutable":                              "Account is immutable",
	"IncorrectAuthority":                     "Incorrect authority provided",
	"AccountNotRentExempt":                   "An account does not have enough lamports to be rent-exempt",
	"InvalidAccountOwner":                    "Invalid account owner",
	"ArithmeticOverflow":                     "Program arithmetic overflowed",
	"UnsupportedSysvar":                      "Unsupported sysvar",
	"IllegalOwner":                           "Provided owner is not allowed",
	"MaxAccountsDataAllocationsExceeded":     "Accounts data allocations exceeded the maximum allowed per transaction",
	"MaxInstructionTraceLengthExceeded":      "Max instruction trace length exceeded",
	"BuiltinProgramsMustConsumeComputeUnits": "Builtin programs must consume compute units",
	"BorshIoError":                           "Failed to serialize or deserialize account data",
}

// byNumber are the errors that a program returns in the upper half of its result; 1 is Custom(0).
var byNumber = [...]string{
	2: "InvalidArgument", 3: "InvalidInstructionData", 4: "InvalidAccountData", 5: "AccountDataTooSmall", 6: "InsufficientFunds",
	7: "IncorrectProgramId", 8: "MissingRequiredSignature", 9: "AccountAlreadyInitialized", 10: "UninitializedAccount",
	11: "NotEnoughAccountKeys", 12: "AccountBorrowFailed", 13: "MaxSeedLengthExceeded", 14: "InvalidSeeds", 15: "BorshIoError",
	16: "AccountNotRentExempt", 17: "UnsupportedSysvar", 18: "IllegalOwner", 19: "MaxAccountsDataAllocationsExceeded",
	20: "InvalidRealloc", 21: "MaxInstructionTraceLengthExceeded", 22: "BuiltinProgramsMustConsumeComputeUnits",
	23: "InvalidAccountOwner", 24: "ArithmeticOverflow", 25: "Immutable", 26: "IncorrectAuthority",
}

// ofResult returns the error for a program's result, or nil.
func ofResult(result uint64) error {
	high, low := result>>32, uint32(result)
	switch {
	case result == 0:
		return nil
	case high == 0:
		return Custom(low)
	case low == 0 && high == 1:
		return Custom(0)
	case low == 0 && high < uint64(len(byNumber)):
		return Error{Name: byNumber[high]}
	}
	return errInvalidError
}
