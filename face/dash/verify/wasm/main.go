//go:build js && wasm

// Command wasm is the page's verifier, compiled for a web worker of a browser.
//
//	verifier.write(bytes)   takes the next Uint8Array of the log; returns the number of verified records, or −1
//	                        after a record that does not verify
//	verifier.report(told)   takes a description of the log as JSON; returns a report as JSON; write may follow
//	verifier.close(told)    ends the log; otherwise like report
//	verifier.show(last)     returns the run, as JSON
//	verifier.events(before) returns older events, as JSON
//	verifier.event(head)    returns the number of the event after which a chain's log had this head, or 0
package main

import (
	"encoding/json"
	"syscall/js"

	"github.com/psyche-go/psyche/face/dash/verify"
)

// asJSON returns a value in the JSON form of the page's server.
func asJSON(value any) any {
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// reporting wraps report as a function of JSON texts.
func reporting(report func(verify.Told) verify.Report) js.Func {
	return js.FuncOf(func(_ js.Value, args []js.Value) any {
		var told verify.Told
		if err := json.Unmarshal([]byte(args[0].String()), &told); err != nil {
			return asJSON(verify.Report{Problem: err.Error()})
		}
		return asJSON(report(told))
	})
}

func main() {
	v := verify.New()
	js.Global().Set("verifier", map[string]any{
		"write": js.FuncOf(func(_ js.Value, args []js.Value) any {
			part := make([]byte, args[0].Length())
			js.CopyBytesToGo(part, args[0])
			if _, err := v.Write(part); err != nil {
				return -1
			}
			return v.Records()
		}),
		"report": reporting(v.Report),
		"close":  reporting(v.Close),
		"show":   js.FuncOf(func(_ js.Value, args []js.Value) any { return asJSON(v.Show(uint32(args[0].Int()))) }),
		"event":  js.FuncOf(func(_ js.Value, args []js.Value) any { return float64(v.Event(args[0].String())) }),
		"events": js.FuncOf(func(_ js.Value, args []js.Value) any {
			events, more := v.Events(args[0].Int())
			return asJSON(map[string]any{"events": events, "more": more})
		}),
	})
	select {}
}
