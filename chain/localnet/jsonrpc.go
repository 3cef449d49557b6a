package localnet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/psyche-go/psyche/chain/transaction"
)

// Error codes of Solana nodes.
const (
	codePreflight   = -32002
	codeSignature   = -32003
	codeUnhealthy   = -32005
	codeMinContext  = -32016
	codeRequest     = -32600
	codeMethod      = -32601
	codeParameters  = -32602
	codeInternal    = -32603
	codeParse       = -32700
	maxBatch        = 100
	maxRequest      = 50 << 10
	maxMultiple     = 100  // accounts of one getMultipleAccounts
	maxStatuses     = 256  // signatures of one getSignatureStatuses
	maxSignatures   = 1000 // of one getSignaturesForAddress
	maxBase58       = 128  // bytes of an account's data in this encoding
	maxFeeSlots     = 150
	maxFeeAddresses = 128
)

// rpcError is an error in an answer.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

func (e *rpcError) Error() string { return e.Message }

func invalid(format string, arguments ...any) *rpcError {
	return &rpcError{Code: codeParameters, Message: "Invalid params: " + fmt.Sprintf(format, arguments...)}
}

// request is a call. A request without an id is not answered.
type request struct {
	Version    string          `json:"jsonrpc"`
	ID         json.RawMessage `json:"id"`
	Method     string          `json:"method"`
	Parameters json.RawMessage `json:"params"`
}

type response struct {
	Version string          `json:"jsonrpc"`
	Result  any             `json:"result,omitempty"`
	Error   *rpcError       `json:"error,omitempty"`
	ID      json.RawMessage `json:"id"`
}

// null is an empty result, which must be encoded.
var null = json.RawMessage("null")

// answer makes a response from the results of a method.
func answer(id json.RawMessage, result any, err error) response {
	if len(id) == 0 {
		id = null
	}
	r := response{Version: "2.0", Result: result, ID: id}
	if err != nil {
		r.Result, r.Error = nil, toRPC(err)
	} else if result == nil {
		r.Result = null
	}
	return r
}

func toRPC(err error) *rpcError {
	if e, ok := errors.AsType[*rpcError](err); ok {
		return e
	}
	if errors.Is(err, errSignatures) {
		return &rpcError{Code: codeSignature, Message: "Transaction signature verification failure"}
	}
	if errors.Is(err, transaction.ErrTooLarge) || errors.Is(err, transaction.ErrMalformed) {
		return invalid("%v", err)
	}
	return &rpcError{Code: codeInternal, Message: err.Error()}
}

// handle processes the body of a request, which contains one call or several. It returns nil if
// there is no answer.
func handle(body []byte, call func(*request) response) any {
	body = bytes.TrimSpace(body)
	if len(body) == 0 || body[0] != '[' {
		return one(body, call)
	}
	var batch []json.RawMessage
	if err := json.Unmarshal(body, &batch); err != nil {
		return answer(nil, nil, &rpcError{Code: codeParse, Message: "Parse error"})
	}
	if len(batch) == 0 || len(batch) > maxBatch {
		return answer(nil, nil, &rpcError{Code: codeRequest, Message: fmt.Sprintf("Invalid request: a batch of %d, want 1 to %d", len(batch), maxBatch)})
	}
	var answers []any
	for _, raw := range batch {
		if a := one(raw, call); a != nil {
			answers = append(answers, a)
		}
	}
	if answers == nil {
		return nil
	}
	return answers
}

func one(raw []byte, call func(*request) response) any {
	var q request
	if err := json.Unmarshal(raw, &q); err != nil {
		if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return answer(nil, nil, &rpcError{Code: codeRequest, Message: "Invalid request"})
		}
		return answer(nil, nil, &rpcError{Code: codeParse, Message: "Parse error"})
	}
	if q.Version != "2.0" || q.Method == "" || len(q.ID) > 0 && strings.IndexByte("\"-0123456789n", q.ID[0]) < 0 {
		return answer(nil, nil, &rpcError{Code: codeRequest, Message: "Invalid request"})
	}
	r := call(&q)
	if len(q.ID) == 0 {
		return nil
	}
	return r
}

// parameters are the arguments of a call, in order. A method refuses a call with invalid arguments.
type parameters []json.RawMessage

func (r *request) parameters() (p parameters, err error) {
	if len(r.Parameters) == 0 || bytes.Equal(r.Parameters, null) {
		return nil, nil
	}
	if err := json.Unmarshal(r.Parameters, &p); err != nil {
		return nil, invalid("want an array")
	}
	return p, nil
}

// missing reports whether an argument is absent or null.
func (p parameters) missing(i int) bool { return i >= len(p) || bytes.Equal(p[i], null) }

// optional decodes an argument, unless it is missing.
func (p parameters) optional(i int, name string, to any) {
	if p.missing(i) {
		return
	}
	if err := json.Unmarshal(p[i], to); err != nil {
		refuse(invalid("%s: %v", name, err))
	}
}

// read decodes a required argument.
func (p parameters) read(i int, name string, to any) {
	if p.missing(i) {
		refuse(invalid("%s is missing", name))
	}
	p.optional(i, name, to)
}

// text reads a required argument that is a text.
func (p parameters) text(i int, name string) (text string) {
	p.read(i, name, &text)
	return text
}

// parsed parses a text with a parser of package transaction.
func parsed[T any](text string, parse func(string) (T, error)) T {
	value, err := parse(text)
	if err != nil {
		refuse(invalid("%v", err))
	}
	return value
}

func (p parameters) key(i int) transaction.PublicKey {
	return parsed(p.text(i, "address"), transaction.ParsePublicKey)
}

func (p parameters) signature(i int) transaction.Signature {
	return parsed(p.text(i, "signature"), transaction.ParseSignature)
}

func parseKeys(texts []string) (keys []transaction.PublicKey) {
	for _, text := range texts {
		keys = append(keys, parsed(text, transaction.ParsePublicKey))
	}
	return keys
}

// settings are the last argument of most methods.
type settings struct {
	Commitment          Commitment `json:"commitment"`
	Encoding            string     `json:"encoding"`
	DataSlice           *dataSlice `json:"dataSlice"`
	MinContextSlot      uint64     `json:"minContextSlot"`
	Filters             []filter   `json:"filters"`
	WithContext         bool       `json:"withContext"`
	Limit               int        `json:"limit"`
	Before              string     `json:"before"`
	Until               string     `json:"until"`
	SkipPreflight       bool       `json:"skipPreflight"`
	PreflightCommitment Commitment `json:"preflightCommitment"`
	SigVerify           bool       `json:"sigVerify"`
	ReplaceHash         bool       `json:"replaceRecentBlockhash"`
	Accounts            *struct {
		Encoding  string   `json:"encoding"`
		Addresses []string `json:"addresses"`
	} `json:"accounts"`
	MaxVersion *int `json:"maxSupportedTransactionVersion"`
}

// settings reads settings from the i-th argument.
func (p parameters) settings(i int) settings {
	s := settings{Commitment: Finalized, PreflightCommitment: Finalized}
	p.optional(i, "configuration", &s)
	for _, c := range []*Commitment{&s.Commitment, &s.PreflightCommitment} {
		switch *c {
		case "":
			*c = Finalized
		case Processed, Confirmed, Finalized:
		default:
			refuse(invalid("commitment %q, want processed, confirmed or finalized", *c))
		}
	}
	return s
}
