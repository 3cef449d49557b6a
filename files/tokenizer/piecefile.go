package tokenizer

import (
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// pieceFile is the content of a tokenizer.model: a ModelProto of SentencePiece
// (sentencepiece_model.proto), without fields that only training uses.
type pieceFile struct {
	pieces []sentencePiece

	modelType  uint64
	fallback   bool   // characters that are not pieces become the pieces of their bytes
	unkSurface string // text of the unknown piece

	rules             *charsmap // nil: characters stay unchanged
	prefix, trim      bool      // add_dummy_prefix, remove_extra_whitespaces
	escape, suffixing bool      // escape_whitespaces, treat_whitespace_as_suffix
}

type sentencePiece struct {
	text  string
	score float32
	kind  uint64
}

// Kinds of pieces.
const (
	pieceNormal  = 1
	pieceUnknown = 2
	pieceControl = 3 // never found in a text, and decoded to an empty text
	pieceDefined = 4 // defined by the trainer of the model; found in text before normalization
	pieceUnused  = 5
	pieceByte    = 6
)

// Types of models.
const (
	modelUnigram = 1
	modelBPE     = 2
)

// field is a field of a message.
type field struct {
	number protowire.Number
	kind   protowire.Type
	bytes  []byte // for strings and messages
	value  uint64 // for numbers, as their bits
}

// eachField calls yield for every field of a message.
func eachField(path string, raw []byte, yield func(field) error) error {
	for len(raw) > 0 {
		number, kind, size := protowire.ConsumeTag(raw)
		if size < 0 {
			return fmt.Errorf("%w: %s is not a protobuf message", errUnsupported, path)
		}
		raw = raw[size:]
		f := field{number: number, kind: kind}
		switch kind {
		case protowire.VarintType:
			f.value, size = protowire.ConsumeVarint(raw)
		case protowire.Fixed32Type:
			var bits uint32
			bits, size = protowire.ConsumeFixed32(raw)
			f.value = uint64(bits)
		case protowire.BytesType:
			f.bytes, size = protowire.ConsumeBytes(raw)
		default:
			size = protowire.ConsumeFieldValue(number, kind, raw)
		}
		if size < 0 {
			return fmt.Errorf("%w: field %d of %s is damaged or truncated", errUnsupported, number, path)
		}
		raw = raw[size:]
		if err := yield(f); err != nil {
			return err
		}
	}
	return nil
}

// want returns an error if a field is not of a type.
func (f field) want(path, name string, kind protowire.Type) error {
	if f.kind != kind {
		return fmt.Errorf("%w: %s.%s has wire type %d, want %d", errUnsupported, path, name, f.kind, kind)
	}
	return nil
}

// parsePieceFile parses a tokenizer.model.
func parsePieceFile(raw []byte) (*pieceFile, error) {
	p := &pieceFile{modelType: modelUnigram, unkSurface: " \u2047 ", prefix: true, trim: true, escape: true}
	err := eachField("the file", raw, func(f field) error {
		names := map[protowire.Number]string{1: "pieces", 2: "trainer_spec", 3: "normalizer_spec", 4: "self_test_data", 5: "denormalizer_spec"}
		name, known := names[f.number]
		if !known {
			return fmt.Errorf("%w: unknown field %d in the file", errUnsupported, f.number)
		}
		if err := f.want("the file", name, protowire.BytesType); err != nil {
			return err
		}
		switch name {
		case "pieces":
			return p.addPiece(f.bytes)
		case "trainer_spec":
			return p.parseTrainer(f.bytes)
		case "normalizer_spec":
			return p.parseNormalizer(f.bytes)
		case "denormalizer_spec":
			return checkDenormalizer(f.bytes)
		}
		return nil
	})
	return p, err
}

// addPiece parses one of pieces.
func (p *pieceFile) addPiece(raw []byte) error {
	path := fmt.Sprintf("pieces[%d]", len(p.pieces))
	if len(p.pieces) == maxVocab {
		return fmt.Errorf("%w: more than %d pieces", errUnsupported, maxVocab)
	}
	piece := sentencePiece{kind: pieceNormal}
	err := eachField(path, raw, func(f field) error {
		switch f.number {
		case 1:
			piece.text = string(f.bytes)
			return f.want(path, "piece", protowire.BytesType)
		case 2:
			piece.score = math.Float32frombits(uint32(f.value))
			return f.want(path, "score", protowire.Fixed32Type)
		case 3:
			piece.kind = f.value
			return f.want(path, "type", protowire.VarintType)
		}
		return fmt.Errorf("%w: unknown field %[3]d in %[2]s", errUnsupported, path, f.number)
	})
	switch {
	case err != nil:
		return err
	case piece.text == "" || len(piece.text) > maxTokenBytes || !utf8.ValidString(piece.text):
		return fmt.Errorf("%w: %s.piece has %d bytes, want 1 to %d of UTF-8", errUnsupported, path, len(piece.text), maxTokenBytes)
	case math.IsNaN(float64(piece.score)) || math.IsInf(float64(piece.score), 0):
		return fmt.Errorf("%w: %s.score is %v", errUnsupported, path, piece.score)
	case piece.kind == pieceUnused || piece.kind < pieceNormal || piece.kind > pieceByte:
		return fmt.Errorf("%w: %s.type is %d, which is not supported", errUnsupported, path, piece.kind)
	}
	p.pieces = append(p.pieces, piece)
	return nil
}

// parseTrainer parses the fields of trainer_spec that are not only for training.
func (p *pieceFile) parseTrainer(raw []byte) error {
	const path = "trainer_spec"
	return eachField(path, raw, func(f field) error {
		switch f.number {
		case 3:
			p.modelType = f.value
			return f.want(path, "model_type", protowire.VarintType)
		case 24:
			p.suffixing = f.value != 0
			return f.want(path, "treat_whitespace_as_suffix", protowire.VarintType)
		case 35:
			p.fallback = f.value != 0
			return f.want(path, "byte_fallback", protowire.VarintType)
		case 44:
			p.unkSurface = string(f.bytes)
			if len(f.bytes) > maxTokenBytes || !utf8.Valid(f.bytes) {
				return fmt.Errorf("%w: trainer_spec.unk_surface has %d bytes, want at most %d of UTF-8", errUnsupported, len(f.bytes), maxTokenBytes)
			}
			return f.want(path, "unk_surface", protowire.BytesType)
		}
		return nil
	})
}

// parseNormalizer parses normalizer_spec.
func (p *pieceFile) parseNormalizer(raw []byte) error {
	const path = "normalizer_spec"
	return eachField(path, raw, func(f field) (err error) {
		switch f.number {
		case 1, 6: // name and original path of the rules
		case 2:
			p.rules = nil
			if len(f.bytes) > 0 {
				if p.rules, err = parseCharsmap(f.bytes); err != nil {
					return fmt.Errorf("%w: normalizer_spec.precompiled_charsmap: %w", errUnsupported, err)
				}
			}
			return f.want(path, "precompiled_charsmap", protowire.BytesType)
		case 3:
			p.prefix = f.value != 0
			return f.want(path, "add_dummy_prefix", protowire.VarintType)
		case 4:
			p.trim = f.value != 0
			return f.want(path, "remove_extra_whitespaces", protowire.VarintType)
		case 5:
			p.escape = f.value != 0
			return f.want(path, "escape_whitespaces", protowire.VarintType)
		default:
			return fmt.Errorf("%w: unknown field %d in normalizer_spec", errUnsupported, f.number)
		}
		return nil
	})
}

// checkDenormalizer refuses rules for decoded text.
func checkDenormalizer(raw []byte) error {
	return eachField("denormalizer_spec", raw, func(f field) error {
		if f.number == 2 && len(f.bytes) > 0 {
			return fmt.Errorf("%w: denormalizer_spec.precompiled_charsmap is set, which is not supported", errUnsupported)
		}
		return nil
	})
}

// check refuses settings with which no IDs can be computed.
func (p *pieceFile) check() error {
	switch {
	case p.modelType != modelUnigram && p.modelType != modelBPE:
		return fmt.Errorf("%w: trainer_spec.model_type is %d, only 1 (unigram) and 2 (BPE) are supported", errUnsupported, p.modelType)
	case p.suffixing:
		return fmt.Errorf("%w: trainer_spec.treat_whitespace_as_suffix is true, only false is supported", errUnsupported)
	case !p.escape:
		return fmt.Errorf("%w: normalizer_spec.escape_whitespaces is false, only true is supported", errUnsupported)
	}
	seen := map[string]bool{}
	unknown, bytes := 0, 0
	for i, piece := range p.pieces {
		if seen[piece.text] {
			return fmt.Errorf("%w: pieces[%d].piece %.80q occurs twice", errUnsupported, i, piece.text)
		}
		seen[piece.text] = true
		switch piece.kind {
		case pieceUnknown:
			unknown++
		case pieceByte:
			if b, ok := fallbackByte(piece.text); !ok || fmt.Sprintf("<0x%02X>", b) != piece.text {
				return fmt.Errorf("%w: pieces[%d].piece is %.80q, want a byte", errUnsupported, i, piece.text)
			}
			bytes++
		}
	}
	switch {
	case unknown != 1:
		return fmt.Errorf("%w: %d pieces have type 2 (unknown), want one", errUnsupported, unknown)
	case p.fallback && bytes != byteValues || !p.fallback && bytes > 0:
		return fmt.Errorf("%w: trainer_spec.byte_fallback is %v, and %d pieces are bytes", errUnsupported, p.fallback, bytes)
	}
	return nil
}

// errNoPieces means that a file is not a SentencePiece model.
var errNoPieces = errors.New("no pieces: not a SentencePiece model")
