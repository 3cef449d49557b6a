package localnet

import (
	"cmp"
	"encoding/base64"
	"errors"

	"github.com/mr-tron/base58"

	"github.com/psyche-go/psyche/chain/transaction"
)

func (e *Endpoint) requestAirdrop(p parameters) any {
	key := p.key(0)
	var lamports uint64
	p.read(1, "lamports", &lamports)
	var name transaction.Signature
	var err error
	e.server.change(func() { name, err = e.server.ledger.Airdrop(key, lamports) })
	if err != nil {
		refuse(err)
	}
	return name.String()
}

// raw reads the transaction from the first argument, and the settings.
func (e *Endpoint) raw(p parameters) ([]byte, transaction.Transaction, settings) {
	text := p.text(0, "transaction")
	s := p.settings(1)
	raw := must(decodeTransaction(text, s.Encoding))
	return raw, must(transaction.Unmarshal(raw)), s
}

func (e *Endpoint) sendTransaction(p parameters) any {
	raw, t, s := e.raw(p)
	faults := e.faulty()
	if !s.SkipPreflight {
		if faults.Unhealthy {
			refuse(unhealthy(faults.Lag))
		}
		s.Commitment = s.PreflightCommitment
		v := e.viewFor(s)
		simulated := must(v.simulate(raw, simulation{Verify: true}))
		if failed := simulated.Err; failed != nil {
			refuse(&rpcError{codePreflight, "Transaction simulation failed: " + failed.Error(), simulatedJSON(simulated, settings{})})
		}
	}
	if !e.loses(faults.Lost) {
		e.server.change(func() { _, _ = e.server.ledger.submit(raw) }) // a transaction that no block can contain is dropped silently
	}
	return t.Name().String()
}

func (e *Endpoint) simulateTransaction(p parameters) any {
	raw, _, s := e.raw(p)
	if s.SigVerify && s.ReplaceHash {
		refuse(invalid("sigVerify may not be used with replaceRecentBlockhash"))
	}
	if s.Accounts != nil && len(s.Accounts.Addresses) > maxMultiple {
		refuse(invalid("%d accounts, at most %d", len(s.Accounts.Addresses), maxMultiple))
	}
	v := e.viewFor(s)
	simulated, err := v.simulate(raw, simulation{Verify: s.SigVerify, NewestHash: s.ReplaceHash})
	if err != nil && !errors.Is(err, errSignatures) {
		refuse(err)
	} else if err != nil {
		simulated = &simulationResult{Record: Record{Err: errSignatures}}
	}
	value := simulatedJSON(simulated, s)
	if s.ReplaceHash {
		hash, last := v.blockhash()
		value["replacementBlockhash"] = map[string]any{"blockhash": hash.String(), "lastValidBlockHeight": last}
	}
	return v.with(value)
}

// simulatedJSON returns the result of a simulation, with the requested accounts.
func simulatedJSON(o *simulationResult, s settings) map[string]any {
	value := map[string]any{
		"err": nil, "logs": linesOf(o.Logs), "accounts": nil, "unitsConsumed": o.Units, "returnData": returnJSON(o.Return),
		"innerInstructions": nil, "replacementBlockhash": nil, "fee": o.Fee,
	}
	if o.Err != nil {
		value["err"] = o.Err
	}
	if s.Accounts == nil {
		return value
	}
	changed := func(key transaction.PublicKey) *Account { return o.Accounts[key] }
	value["accounts"] = encodeAccounts(parseKeys(s.Accounts.Addresses), changed, s.Accounts.Encoding, nil)
	return value
}

// linesOf returns logs that are never null.
func linesOf(logs []string) []string {
	if logs == nil {
		return []string{}
	}
	return logs
}

func returnJSON(r *ReturnData) any {
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

func (e *Endpoint) getSignatureStatuses(p parameters) any {
	var texts []string
	p.read(0, "signatures", &texts)
	if len(texts) > maxStatuses {
		refuse(invalid("%d signatures, at most %d", len(texts), maxStatuses))
	}
	v := e.view(Processed)
	statuses := []any{}
	for _, text := range texts {
		name := parsed(text, transaction.ParseSignature)
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
	return v.with(statuses)
}

// lasting returns the view for methods that do not support processed slots.
func (e *Endpoint) lasting(p parameters, i int) (View, settings) {
	v, s := e.at(p, i)
	if s.Commitment == Processed {
		refuse(invalid("Method does not support commitment below `confirmed`"))
	}
	return v, s
}

func (e *Endpoint) getSignaturesForAddress(p parameters) any {
	key := p.key(0)
	v, s := e.lasting(p, 1)
	s.Limit = cmp.Or(s.Limit, maxSignatures)
	if s.Limit < 1 || s.Limit > maxSignatures {
		refuse(invalid("limit %d, want 1 to %d", s.Limit, maxSignatures))
	}
	var before, until transaction.Signature
	for text, to := range map[string]*transaction.Signature{s.Before: &before, s.Until: &until} {
		if text == "" {
			continue
		}
		*to = parsed(text, transaction.ParseSignature)
	}
	found := []map[string]any{}
	for _, r := range v.Newest(key, s.Limit, before, until) {
		found = append(found, map[string]any{
			"signature": r.Name.String(), "slot": r.Slot, "err": errOrNil(r), "memo": nil, "blockTime": r.Time, "confirmationStatus": e.commitmentOf(r.Slot),
		})
	}
	return found
}

func (e *Endpoint) getTransaction(p parameters) any {
	name := p.signature(0)
	encoding := ""
	if !p.missing(1) && p[1][0] == '"' { // the older form: only an encoding
		encoding = p.text(1, "encoding")
		p = p[:1]
	}
	v, s := e.lasting(p, 1)
	s.Encoding = cmp.Or(encoding, s.Encoding)
	r := v.record(name)
	if r == nil || r.Raw == nil {
		return nil
	}
	body := transactionJSON(r, s.Encoding)
	found := map[string]any{"slot": r.Slot, "blockTime": r.Time, "transaction": body, "meta": metaJSON(r)}
	if s.MaxVersion != nil {
		found["version"] = "legacy"
	}
	return found
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

func transactionJSON(r *Record, encoding string) any {
	switch encoding {
	case "base64":
		return []string{base64.StdEncoding.EncodeToString(r.Raw), encoding}
	case "base58":
		return []string{base58.Encode(r.Raw), encoding}
	case "", "json", "jsonParsed":
	default:
		refuse(invalid("encoding %q, want json, base58 or base64", encoding))
	}
	t := must(transaction.Unmarshal(r.Raw))
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
	return map[string]any{"signatures": signatures, "message": message}
}
