package rpc

import (
	"encoding/base64"
	"strings"

	"github.com/psyche-go/psyche/chain/transaction"
)

// maxLogDepth bounds the calls of programs by programs that ProgramData follows.
const maxLogDepth = 64

// ProgramData returns what a program wrote with sol_log_data in a transaction, in order, one
// entry for each call with its slices joined. What other programs wrote in the same transaction
// is left out; so is everything when the logs were cut off, and then complete is false.
func ProgramData(logs []string, program transaction.PublicKey) (data [][]byte, complete bool) {
	_, complete = readLogs(logs, program, func(_ int, entry []byte) { data = append(data, entry) })
	if !complete {
		return nil, false
	}
	return data, true
}

// ProgramCalls is ProgramData by the instructions of the message that are the program's, one list
// for each. What it wrote when other programs called it is left out.
func ProgramCalls(logs []string, program transaction.PublicKey) (calls [][][]byte, complete bool) {
	byCall := make(map[int][][]byte)
	count, complete := readLogs(logs, program, func(call int, entry []byte) { byCall[call] = append(byCall[call], entry) })
	if !complete {
		return nil, false
	}
	for i := range count {
		calls = append(calls, byCall[i])
	}
	return calls, true
}

// noCall stands for a call that is no instruction of the message.
const noCall = -1

// readLogs shows what a program wrote with sol_log_data to visit, with the number of the call
// among the message's instructions for it, and returns how many of these there are.
func readLogs(logs []string, program transaction.PublicKey, visit func(call int, entry []byte)) (calls int, complete bool) {
	var running []string // the programs that called each other
	name := program.String()
	for _, line := range logs {
		rest, ofProgram := strings.CutPrefix(line, "Program ")
		switch {
		case line == "Log truncated":
			return 0, false
		case !ofProgram:
			continue
		}
		if encoded, ok := strings.CutPrefix(rest, "data: "); ok {
			if len(running) > 0 && running[len(running)-1] == name {
				entry, ok := logged(encoded)
				if !ok {
					return 0, false
				}
				call := noCall
				if len(running) == 1 {
					call = calls - 1
				}
				visit(call, entry)
			}
			continue
		}
		id, event, _ := strings.Cut(rest, " ")
		switch {
		case strings.HasSuffix(id, ":"): // "Program log: " is a program's own text, whatever it says
		case strings.HasPrefix(event, "invoke ["):
			if len(running) == maxLogDepth {
				return 0, false
			}
			if len(running) == 0 && id == name {
				calls++
			}
			running = append(running, id)
		case (event == "success" || strings.HasPrefix(event, "failed: ")) && len(running) > 0 && running[len(running)-1] == id:
			running = running[:len(running)-1]
		}
	}
	return calls, true
}

// logged decodes the slices of one call.
func logged(encoded string) ([]byte, bool) {
	var entry []byte
	for part := range strings.FieldsSeq(encoded) {
		raw, err := base64.StdEncoding.DecodeString(part)
		if err != nil {
			return nil, false
		}
		entry = append(entry, raw...)
	}
	return entry, true
}
