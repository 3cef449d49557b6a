package localnet

import (
	"cmp"
	"encoding/base64"
	"errors"

	"github.com/mr-tron/base58"

	"github.com/psyche-go/psyche/chain/transaction"
)

func (e *Endpoint) requestAirdrop(p *parameters) (any, error) {
	key := p.key(0)
	var lamports uint64
	if p.read(1, "lamports", &lamports); p.err != nil {
		return nil, p.err
	}
	var name transaction.Signature
	var err error
	e.server.change(func() { name, err = e.server.ledger.Airdrop(key, lamports) })
	if err != nil {
		return nil, err
	}
	return name.String(), nil
}

// raw reads the transaction from the first argument, and the settings.
func (e *Endpoint) raw(p *parameters) ([]byte, *transaction.Transaction, settings, error) {
	text := p.text(0, "transaction")
	s := p.settings(1)
	if p.err != nil {
		return nil, nil, s, p.err
	}
	raw, err := decodeTransaction(text, s.Encoding)
	if err != nil {
		return nil, nil, s, err
	}
	t, err := transaction.Unmarshal(raw)
	return raw, &t, s, err
}

func (e *Endpoint) sendTransaction(p *parameters) (any, error) {
	raw, t, s, err := e.raw(p)
	if err != nil {
		return nil, err
	}
	faults := e.faulty()
	if !s.SkipPreflight {
		if faults.Unhealthy {
			return nil, unhealthy(faults.Lag)
		}
		s.Commitment = s.PreflightCommitment
		v, err := e.viewFor(s)
		if err != nil {
			return nil, err
		}
		simulated, err := v.simulate(raw, simulation{Verify: true})
		if err != nil {
			return nil, err
		}
		if failed := simulated.Err; failed != nil {
			value, _ := simulatedJSON(simulated, settings{})
			return nil, &rpcError{codePreflight, "Transaction simulation failed: " + failed.Error(), value}
		}
	}
	if !e.loses(faults.Lost) {
		e.server.change(func() { _, _ = e.server.ledger.submit(raw) }) // a transaction that no block can contain is dropped silently
	}
	return t.Name().String(), nil
}

func (e *Endpoint) simulateTransaction(p *parameters) (any, error) {
	raw, _, s, err := e.raw(p)
	if err != nil {
		return nil, err
	}
	if s.SigVerify && s.ReplaceHash {
		return nil, invalid("sigVerify may not be used with replaceRecentBlockhash")
	}
	if s.Accounts != nil && len(s.Accounts.Addresses) > maxMultiple {
		return nil, invalid("%d accounts, at most %d", len(s.Accounts.Addresses), maxMultiple)
	}
	v, err := e.viewFor(s)
	if err != nil {
		return nil, err
	}
	simulated, err := v.simulate(raw, simulation{Verify: s.SigVerify, NewestHash: s.ReplaceHash})
	if err != nil && !errors.Is(err, errSignatures) {
		return nil, err
	} else if err != nil {
		simulated = &simulationResult{Record: Record{Err: errSignatures}}
	}
	value, err := simulatedJSON(simulated, s)
	if err != nil {
		return nil, err
	}
	if s.ReplaceHash {
		hash, last := v.blockhash()
		value["replacementBlockhash"] = map[string]any{"blockhash": hash.String(), "lastValidBlockHeight": last}
	}
	return v.with(value), nil
}

// simulatedJSON returns the result of a simulation, with the requested accounts.
func simulatedJSON(o *simulationResult, s settings) (map[string]any, error) {
	value := map[string]any{
		"err": nil, "logs": linesOf(o.Logs), "accounts": nil, "unitsConsumed": o.Units, "returnData": returnJSON(o.Return),
		"innerInstructions": nil, "replacementBlockhash": nil, "fee": o.Fee,
	}
	if o.Err != nil {
		value["err"] = o.Err
	}
	if s.Accounts == nil {
		return value, nil
	}
	keys, err := parseKeys(s.Accounts.Addresses)
	if err != nil {
		return nil, err
	}
	changed := func(key transaction.PublicKey) *Account { return o.Accounts[key] }
	value["accounts"], err = encodeAccounts(keys, changed, s.Accounts.Encoding, nil)
	return value, err
}

// linesOf returns logs that are never null.
func linesOf(logs []string) []string {
	if logs == nil {
		return []string{}
	}
	return logs
}

func returnJSON(r *returnData) any {
	if r == nil {
		return nil
	}
	return map[string]any{"programId": r.Program.String(), "data": []string{base64.StdEncoding.EncodeToString(r.Data), "base64"}}
}

// commitmentOf returns the commitment of a slot on this node.
func (e *Endpoint) commitmentOf(number uint64) Commitment {
	for _, c := range []Commitment{Finalized, Confirmed} {
		if number <= e.view(c).Slot {
			return c
		}
	}
	return Processed
}

func errOrNil(r *Record) any {
	if r.Err == nil {
		return nil
	}
	return r.Err
}

func statusJSON(r *Record) any {
	if r.Err == nil {
		return map[string]any{"Ok": nil}
	}
	return map[string]any{"Err": r.Err}
}

func (e *Endpoint) getSignatureStatuses(p *parameters) (any, error) {
	var texts []string
	if p.read(0, "signatures", &texts); p.err != nil {
		return nil, p.err
	}
	if len(texts) > maxStatuses {
		return nil, invalid("%d signatures, at most %d", len(texts), maxStatuses)
	}
	v := e.view(Processed)
	statuses := []any{}
	for _, text := range texts {
		name, err := parseSignature(text)
		if err != nil {
			return nil, err
		}
		r := v.record(name)
		if r == nil {
			statuses = append(statuses, nil)
			continue
		}
		status := map[string]any{
			"slot": r.Slot, "err": errOrNil(r), "status": statusJSON(r), "confirmationStatus": e.commitmentOf(r.Slot), "confirmations": v.Slot - r.Slot,
		}
		if status["confirmationStatus"] == Finalized {
			status["confirmations"] = nil
		}
		statuses = append(statuses, status)
	}
	return v.with(statuses), nil
}

// lasting returns the view for methods that do not support processed slots.
func (e *Endpoint) lasting(p *parameters, i int) (View, settings) {
	v, s := e.at(p, i)
	if s.Commitment == Processed {
		p.fail(invalid("Method does not support commitment below `confirmed`"))
	}
	return v, s
}

func (e *Endpoint) getSignaturesForAddress(p *parameters) (any, error) {
	key := p.key(0)
	v, s := e.lasting(p, 1)
	if p.err != nil {
		return nil, p.err
	}
	s.Limit = cmp.Or(s.Limit, maxSignatures)
	if s.Limit < 1 || s.Limit > maxSignatures {
		return nil, invalid("limit %d, want 1 to %d", s.Limit, maxSignatures)
	}
	var before, until transaction.Signature
	for text, to := range map[string]*transaction.Signature{s.Before: &before, s.Until: &until} {
		if text == "" {
			continue
		}
		var err error
		if *to, err = parseSignature(text); err != nil {
			return nil, err
		}
	}
	found := []map[string]any{}
	for _, r := range v.Newest(key, s.Limit, before, until) {
		found = append(found, map[string]any{
			"signature": r.Name.String(), "slot": r.Slot, "err": errOrNil(r), "memo": nil, "blockTime": r.Time, "confirmationStatus": e.commitmentOf(r.Slot),
		})
	}
	return found, nil
}

func (e *Endpoint) getTransaction(p *parameters) (any, error) {
	name := p.signature(0)
	encoding := ""
	if !p.missing(1) && p.raw[1][0] == '"' { // the older form: only an encoding
		encoding = p.text(1, "encoding")
		p.raw = p.raw[:1]
	}
	v, s := e.lasting(p, 1)
	if p.err != nil {
		return nil, p.err
	}
	s.Encoding = cmp.Or(encoding, s.Encoding)
	r := v.record(name)
	if r == nil || r.Raw == nil {
		return nil, nil
	}
	body, err := transactionJSON(r, s.Encoding)
	if err != nil {
		return nil, err
	}
	found := map[string]any{"slot": r.Slot, "blockTime": r.Time, "transaction": body, "meta": metaJSON(r)}
	if s.MaxVersion != nil {
		found["version"] = "legacy"
	}
	return found, nil
}

func metaJSON(r *Record) map[string]any {
	meta := map[string]any{
		"err": errOrNil(r), "status": statusJSON(r), "fee": r.Fee, "preBalances": r.Pre, "postBalances": r.Post, "innerInstructions": []any{},
		"logMessages": linesOf(r.Logs), "preTokenBalances": []any{}, "postTokenBalances": []any{}, "rewards": []any{},
		"loadedAddresses": map[string]any{"readonly": []any{}, "writable": []any{}}, "computeUnitsConsumed": r.Units,
	}
	if r.Return != nil {
		meta["returnData"] = returnJSON(r.Return)
	}
	return meta
}

func transactionJSON(r *Record, encoding string) (any, error) {
	switch encoding {
	case "base64":
		return []string{base64.StdEncoding.EncodeToString(r.Raw), encoding}, nil
	case "base58":
		return []string{base58.Encode(r.Raw), encoding}, nil
	case "", "json", "jsonParsed":
	default:
		return nil, invalid("encoding %q, want json, base58 or base64", encoding)
	}
	t, err := transaction.Unmarshal(r.Raw)
	if err != nil {
		return nil, err
	}
	var signatures, keys []string
	for _, s := range t.Signatures {
		signatures = append(signatures, s.String())
	}
	for _, key := range t.Message.Keys {
		keys = append(keys, key.String())
	}
	instructions := []any{}
	for _, in := range t.Message.Instructions {
		accounts := []int{}
		for _, i := range in.Accounts {
			accounts = append(accounts, int(i))
		}
		instructions = append(instructions, map[string]any{"programIdIndex": in.Program, "accounts": accounts, "data": base58.Encode(in.Data), "stackHeight": 1})
	}
	header := map[string]uint8{
		"numRequiredSignatures": t.Message.Signers, "numReadonlySignedAccounts": t.Message.ReadOnlySigners, "numReadonlyUnsignedAccounts": t.Message.ReadOnlyUnsigned,
	}
	message := map[string]any{"header": header, "accountKeys": keys, "recentBlockhash": t.Message.Blockhash.String(), "instructions": instructions}
	return map[string]any{"signatures": signatures, "message": message}, nil
}
