package localnet

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/chain/sbpf/runtime"
)

// TransactionError is the reason why a transaction fails, in the form of the chain's JSON-RPC
// interface.
type TransactionError struct {
	Name  string // such as BlockhashNotFound
	Index int    // of the instruction or account at fault, if any
	Err   error  // for InstructionError: a runtime.Error
}

// Errors of transactions without an index.
var (
	errAccountNotFound      = &TransactionError{Name: "AccountNotFound"}
	errProgramNotFound      = &TransactionError{Name: "ProgramAccountNotFound"}
	errFunds                = &TransactionError{Name: "InsufficientFundsForFee"}
	errPayer                = &TransactionError{Name: "InvalidAccountForFee"}
	errProcessed            = &TransactionError{Name: "AlreadyProcessed"}
	errBlockhash            = &TransactionError{Name: "BlockhashNotFound"}
	errSignatures           = &TransactionError{Name: "SignatureFailure"}
	errProgram              = &TransactionError{Name: "InvalidProgramForExecution"}
	errLocks                = &TransactionError{Name: "TooManyAccountLocks"}
	errLoadedSize           = &TransactionError{Name: "MaxLoadedAccountsDataSizeExceeded"}
	errInvalidLoadedSize    = &TransactionError{Name: "InvalidLoadedAccountsDataSizeLimit"}
	errDuplicateInstruction = "DuplicateInstruction"
	errRent                 = "InsufficientFundsForRent"
	errInstruction          = "InstructionError"
)

var transactionTexts = map[string]string{
	"AccountNotFound":                    "Attempt to debit an account but found no record of a prior credit.",
	"ProgramAccountNotFound":             "Attempt to load a program that does not exist",
	"InsufficientFundsForFee":            "Insufficient funds for fee",
	"InvalidAccountForFee":               "This account may not be used to pay transaction fees",
	"AlreadyProcessed":                   "This transaction has already been processed",
	"BlockhashNotFound":                  "Blockhash not found",
	"SignatureFailure":                   "Transaction did not pass signature verification",
	"InvalidProgramForExecution":         "This program may not be used for executing instructions",
	"TooManyAccountLocks":                "Transaction locked too many accounts",
	"MaxLoadedAccountsDataSizeExceeded":  "Transaction exceeded max loaded accounts data size cap",
	"InvalidLoadedAccountsDataSizeLimit": "LoadedAccountsDataSizeLimit set for transaction must be greater than 0.",
}

func (e *TransactionError) Error() string {
	switch e.Name {
	case errInstruction:
		return fmt.Sprintf("Error processing Instruction %d: %v", e.Index, e.Err)
	case errRent:
		return fmt.Sprintf("Transaction results in an account (%d) with insufficient funds for rent", e.Index)
	case errDuplicateInstruction:
		return fmt.Sprintf("Transaction contains a duplicate instruction (%d) that is not allowed", e.Index)
	}
	return transactionTexts[e.Name]
}

func (e *TransactionError) Unwrap() error { return e.Err }

// MarshalJSON encodes the error as the chain's nodes do.
func (e *TransactionError) MarshalJSON() ([]byte, error) {
	switch e.Name {
	case errInstruction:
		return json.Marshal(map[string]any{e.Name: []any{e.Index, instructionJSON(e.Err)}})
	case errRent:
		return json.Marshal(map[string]any{e.Name: map[string]int{"account_index": e.Index}})
	case errDuplicateInstruction:
		return json.Marshal(map[string]int{e.Name: e.Index})
	}
	return json.Marshal(e.Name)
}

func instructionJSON(err error) any {
	e, ok := errors.AsType[runtime.Error](err)
	switch {
	case !ok:
		return "GenericError"
	case e.Name == "Custom":
		return map[string]uint32{e.Name: e.Code}
	}
	return e.Name
}

// refusal is the panic that ends a client's call, or an instruction, at its first error. [attempt]
// recovers it.
type refusal struct{ error }

func refuse(err error) { panic(refusal{err}) }

// must returns a value, or refuses if there is an error.
func must[T any](value T, err error) T {
	if err != nil {
		refuse(err)
	}
	return value
}

// attempt returns the result of do, or the error if do panics with a refusal.
func attempt[T any](do func() T) (result T, err error) {
	defer func() {
		if value := recover(); value != nil {
			refused, ours := value.(refusal)
			if !ours {
				panic(value)
			}
			err = refused.error
		}
	}()
	return do(), nil
}
