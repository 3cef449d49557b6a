package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"
)

// maxLine is the maximum size of a line in a log, including its newline.
const maxLine = 1 << 20

// errInvalid means that a line is not an event.
var errInvalid = errors.New("invalid event")

// Event is one line of a log.
type Event struct {
	Time time.Time
	Body Body // one of the structs of kinds.go, by value
}

// kinds contains the type of every body, for decoding.
var kinds = func() map[string]reflect.Type {
	known := make(map[string]reflect.Type)
	for _, body := range []Body{
		Started{}, State{}, Joined{}, Ready{}, Trained{}, ResultSent{}, ResultsHeld{}, Span{}, Rejected{}, Equivocation{},
		WitnessSent{}, HealthCheckSent{}, Applied{}, Wire{}, Checkpoint{}, Uploaded{}, Desynchronised{}, Rejoined{},
		Finished{}, Failed{}, Misbehaved{}, Gradient{}, OptimizerStats{}, Evaluated{}, Paid{}, Served{},
		Opened{}, Audit{}, Accused{}, Voted{}, Trial{}, Trials{}, Ejected{}, Transfer{}, Named{},
	} {
		known[body.Kind()] = reflect.TypeOf(body)
	}
	return known
}()

// encode returns the line of an event, including its newline.
func encode(e Event) ([]byte, error) {
	fields, err := json.Marshal(e.Body)
	if err != nil {
		return nil, fmt.Errorf("encode event %q: %w", e.Body.Kind(), err)
	}
	head, err := json.Marshal(header{Time: e.Time.UTC(), Kind: e.Body.Kind()})
	if err != nil {
		return nil, fmt.Errorf("encode event %q: %w", e.Body.Kind(), err)
	}
	line := head
	if len(fields) > len("{}") {
		line = append(head[:len(head)-1], ',')
		line = append(line, fields[1:]...)
	}
	line = append(line, '\n')
	if len(line) > maxLine {
		return nil, fmt.Errorf("encode event %q: %w: %d bytes, at most %d", e.Body.Kind(), errInvalid, len(line), maxLine)
	}
	return line, nil
}

// header contains the fields at the start of every line.
type header struct {
	Time time.Time `json:"time"`
	Kind string    `json:"kind"`
}

// Decode parses one line, with or without its newline.
func Decode(line []byte) (Event, error) {
	line = bytes.TrimSuffix(line, []byte{'\n'})
	if len(line) >= maxLine {
		return Event{}, fmt.Errorf("%w: line of %d bytes, at most %d", errInvalid, len(line), maxLine-1)
	}
	var head header
	if err := json.Unmarshal(line, &head); err != nil {
		return Event{}, fmt.Errorf("%w: %w", errInvalid, err)
	}
	if head.Kind == "" || head.Time.IsZero() {
		return Event{}, fmt.Errorf("%w: no %q or no %q", errInvalid, "kind", "time")
	}
	kind, known := kinds[head.Kind]
	if !known {
		return Event{Time: head.Time, Body: unknown{Name: head.Kind, Raw: bytes.Clone(line)}}, nil
	}
	body := reflect.New(kind)
	if err := json.Unmarshal(line, body.Interface()); err != nil {
		return Event{}, fmt.Errorf("%w: kind %q: %w", errInvalid, head.Kind, err)
	}
	return Event{Time: head.Time, Body: body.Elem().Interface().(Body)}, nil
}
