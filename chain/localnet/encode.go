package localnet

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/mr-tron/base58"

	"github.com/psyche-go/psyche/chain/transaction"
)

// accountJSON is the JSON form of an account.
type accountJSON struct {
	Data       any    `json:"data"`
	Executable bool   `json:"executable"`
	Lamports   uint64 `json:"lamports"`
	Owner      string `json:"owner"`
	RentEpoch  uint64 `json:"rentEpoch"`
	Space      int    `json:"space"`
}

// keyedJSON is an account with its address.
type keyedJSON struct {
	Pubkey  string       `json:"pubkey"`
	Account *accountJSON `json:"account"`
}

// dataSlice is the requested part of an account's data.
type dataSlice struct {
	Offset uint64 `json:"offset"`
	Length uint64 `json:"length"`
}

func (s *dataSlice) cut(data []byte) []byte {
	if s == nil {
		return data
	}
	from := min(s.Offset, uint64(len(data)))
	return data[from:][:min(s.Length, uint64(len(data))-from)]
}

// encodeAccount returns the account as JSON, or nil.
func encodeAccount(a *Account, encoding string, slice *dataSlice) (*accountJSON, error) {
	if a == nil {
		return nil, nil
	}
	data, err := encodeData(slice.cut(a.Data), encoding)
	if err != nil {
		return nil, err
	}
	return &accountJSON{data, a.Executable, a.Lamports, a.Owner.String(), rentEpoch, len(a.Data)}, nil
}

// encodeAccounts returns accounts as JSON, in base64 unless an encoding is given.
func encodeAccounts(keys []transaction.PublicKey, lookup func(transaction.PublicKey) *Account, encoding string, slice *dataSlice) []*accountJSON {
	accounts := make([]*accountJSON, len(keys))
	for i, key := range keys {
		accounts[i] = must(encodeAccount(lookup(key), cmp.Or(encoding, "base64"), slice))
	}
	return accounts
}

// compressor is shared: EncodeAll is safe for concurrent use.
var compressor = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		panic(err)
	}
	return e
})

// encodeData encodes bytes as text. If the caller requests the parsed form and the data cannot be
// parsed, it uses base64.
func encodeData(data []byte, encoding string) (any, error) {
	switch encoding {
	case "", "binary", "base58":
		if len(data) > maxBase58 {
			return nil, &rpcError{Code: codeRequest, Message: "Encoded binary (base 58) data should be less than 128 bytes, please use Base64 encoding."}
		}
		if text := base58.Encode(data); encoding != "base58" {
			return text, nil
		} else {
			return []string{text, encoding}, nil
		}
	case "base64", "jsonParsed":
		return []string{base64.StdEncoding.EncodeToString(data), "base64"}, nil
	case "base64+zstd":
		return []string{base64.StdEncoding.EncodeToString(compressor().EncodeAll(data, nil)), encoding}, nil
	}
	return nil, invalid("encoding %q, want base58, base64, base64+zstd or jsonParsed", encoding)
}

// filter is a condition for accounts of a program.
type filter struct {
	DataSize *uint64 `json:"dataSize"`
	Memcmp   *struct {
		Offset   uint64 `json:"offset"`
		Bytes    string `json:"bytes"`
		Encoding string `json:"encoding"`
	} `json:"memcmp"`
	bytes []byte
}

// maxFilters and maxMemcmp are the limits of real nodes.
const (
	maxFilters = 4
	maxMemcmp  = 128
)

// prepare decodes the operands of filters, and refuses invalid ones.
func prepare(filters []filter) {
	if len(filters) > maxFilters {
		refuse(invalid("%d filters, at most %d", len(filters), maxFilters))
	}
	for i := range filters {
		f := &filters[i]
		if f.Memcmp == nil {
			if f.DataSize == nil {
				refuse(invalid("filter %d is neither dataSize nor memcmp", i))
			}
			continue
		}
		if len(f.Memcmp.Bytes) > 2*maxMemcmp {
			refuse(invalid("filter %d: at most %d bytes", i, maxMemcmp))
		}
		var err error
		if f.Memcmp.Encoding == "base64" {
			f.bytes, err = base64.StdEncoding.DecodeString(f.Memcmp.Bytes)
		} else if f.Memcmp.Bytes != "" {
			f.bytes, err = base58.Decode(f.Memcmp.Bytes)
		}
		if err != nil || len(f.bytes) > maxMemcmp {
			refuse(invalid("filter %d: want at most %d bytes in base58 or base64 (%v)", i, maxMemcmp, err))
		}
	}
}

func passes(filters []filter, a *Account) bool {
	for _, f := range filters {
		if f.DataSize != nil && *f.DataSize != uint64(len(a.Data)) {
			return false
		}
		if f.Memcmp != nil && (f.Memcmp.Offset > uint64(len(a.Data)) || !bytes.HasPrefix(a.Data[f.Memcmp.Offset:], f.bytes)) {
			return false
		}
	}
	return true
}

// decodeTransaction decodes a transaction's bytes from text. It rejects texts that are too long
// without decoding them.
func decodeTransaction(text, encoding string) ([]byte, error) {
	const most58, most64 = 1683, 1644
	switch encoding {
	case "", "base58":
		if len(text) > most58 {
			return nil, invalid("base58 encoded transaction too large: %d bytes (max: encoded/raw %d/%d)", len(text), most58, transaction.MaxSize)
		}
		raw, err := base58.Decode(text)
		if err != nil {
			return nil, invalid("invalid base58 encoding: %v", err)
		}
		return raw, nil
	case "base64":
		if len(text) > most64 {
			return nil, invalid("base64 encoded transaction too large: %d bytes (max: encoded/raw %d/%d)", len(text), most64, transaction.MaxSize)
		}
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, invalid("invalid base64 encoding: %v", err)
		}
		return raw, nil
	}
	return nil, invalid("unsupported encoding: %s. Supported encodings: base58, base64", encoding)
}
