package rpc

import (
	"encoding/json"
	"errors"
	"fmt"
)

// nodeError is a node's error answer.
type nodeError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e *nodeError) Error() string { return fmt.Sprintf("%s (%d)", e.Message, e.Code) }

// Codes of errors about the node instead of the request.
const (
	codeBlockMissing   = -32004
	codeUnhealthy      = -32005
	codeSlotSkipped    = -32007
	codeNoSnapshot     = -32008
	codeNotYet         = -32014
	codeMinContextSlot = -32016 // the node is behind
	codeInternal       = -32603
)

// ofNode reports whether another node may answer.
func (e *nodeError) ofNode() bool {
	switch e.Code {
	case codeBlockMissing, codeUnhealthy, codeSlotSkipped, codeNoSnapshot, codeNotYet, codeMinContextSlot, codeInternal:
		return true
	}
	return false
}

// TransactionError is the reason why a transaction failed.
type TransactionError struct {
	Name        string // such as BlockhashNotFound or InstructionError
	Instruction int    // index in the transaction, for an InstructionError
	Detail      string // for an InstructionError: such as InvalidArgument or Custom
	Custom      uint32 // the program's code, for a Custom error
}

func (e *TransactionError) Error() string {
	switch {
	case e.Name != "InstructionError":
		return "transaction failed: " + e.Name
	case e.Detail == "Custom":
		return fmt.Sprintf("transaction failed: instruction %d: code %d", e.Instruction, e.Custom)
	default:
		return fmt.Sprintf("transaction failed: instruction %d: %s", e.Instruction, e.Detail)
	}
}

// IsCustom reports whether a program refused one of the instructions, and its code.
func (e *TransactionError) IsCustom() (code uint32, ok bool) {
	return e.Custom, e.Name == "InstructionError" && e.Detail == "Custom"
}

// UnmarshalJSON parses a unit variant, "Name", or a variant with fields, {"Name": ...}.
func (e *TransactionError) UnmarshalJSON(b []byte) error {
	*e = TransactionError{}
	name, fields, err := variant(b)
	if err != nil {
		return fmt.Errorf("error of a transaction: %w", err)
	}
	e.Name = name
	if name != "InstructionError" {
		return nil
	}
	parts := []json.RawMessage{}
	if err := json.Unmarshal(fields, &parts); err != nil || len(parts) != 2 {
		return errors.New("error of a transaction: InstructionError without an instruction and a reason")
	}
	if err := json.Unmarshal(parts[0], &e.Instruction); err != nil {
		return fmt.Errorf("error of a transaction: %w", err)
	}
	if e.Detail, fields, err = variant(parts[1]); err != nil {
		return fmt.Errorf("error of a transaction: %w", err)
	}
	if e.Detail == "Custom" {
		if err := json.Unmarshal(fields, &e.Custom); err != nil {
			return fmt.Errorf("error of a transaction: custom code: %w", err)
		}
	}
	return nil
}

// variant parses a variant of an enumeration, and its fields if it has any.
func variant(b []byte) (name string, fields json.RawMessage, err error) {
	if err := json.Unmarshal(b, &name); err == nil {
		return shorten([]byte(name)), nil, nil
	}
	var variants map[string]json.RawMessage
	if err := json.Unmarshal(b, &variants); err != nil {
		return "", nil, err
	}
	if len(variants) != 1 {
		return "", nil, fmt.Errorf("%d variants at once", len(variants))
	}
	for name, fields = range variants {
		name = shorten([]byte(name))
	}
	return name, fields, nil
}
