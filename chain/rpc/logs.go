package rpc

import (
	"encoding/base64"
	"strings"

	"github.com/psyche-go/psyche/chain/transaction"
)

// maxLogDepth limits the depth of calls between programs that ProgramData follows.
const maxLogDepth = 64

// ProgramData returns the data that a program logged with sol_log_data in a transaction, in order.
// Each entry is one call, with its slices joined. It ignores other programs in the same
// transaction. If the logs were truncated, it returns no data and complete is false.
func ProgramData(logs []string, program transaction.PublicKey) (data [][]byte, complete bool) {
	_, complete = readLogs(logs, program, func(_ int, entry []byte) { data = append(data, entry) })
	if !complete {
		return nil, false
	}
	return data, true
}

// ProgramCalls is ProgramData with a separate list for each instruction of the message that calls
// the program. It leaves out data that the program logged when other programs called it.
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

// noCall marks a call that is not an instruction of the message.
const noCall = -1

// readLogs calls visit with each entry that a program logged with sol_log_data and with the number
// of the program's instruction in the message. It returns the number of such instructions.
func readLogs(logs []string, program transaction.PublicKey, visit func(call int, entry []byte)) (calls int, complete bool) {
	var running []string // the call stack of programs
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
		case strings.HasSuffix(id, ":"): // the text of a "Program log: " line can be anything
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
