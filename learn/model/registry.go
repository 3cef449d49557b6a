package model

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/files/safetensors"
	"github.com/psyche-go/psyche/learn/memory"
	"github.com/psyche-go/psyche/learn/model/deepseek"
	"github.com/psyche-go/psyche/learn/model/hfconfig"
	"github.com/psyche-go/psyche/learn/model/llama"
	"github.com/psyche-go/psyche/learn/torch"
)

// errOption means that a model does not support an option.
var errOption = errors.New("unsupported option")

// errArchitecture means that a config.json names no supported architecture.
var errArchitecture = errors.New("unsupported architecture")

// Description describes the model of a config.json before it is created.
type Description struct {
	Architecture  string
	VocabSize     int
	MaxTokens     int
	NumParameters int64
	NumHidden     int64 // of NumParameters: in matrices between hidden layers
	Largest       int64 // of NumParameters: in the largest tensor
	Experts       bool  // tokens are routed to some of many feed-forward layers

	// Activations is the minimum number of values that training keeps for each token for the
	// backward pass, and Recomputed the same with Options.Recompute.
	Activations, Recomputed int64
	// Layer is the part of Activations that a backward pass needs for the gradients in the largest layer.
	Layer int64
}

// Memory returns the sizes that package memory needs.
func (d Description) Memory() memory.Model {
	return memory.Model{
		Parameters: uint64(d.NumParameters), Matrices: uint64(d.NumHidden), Largest: uint64(d.Largest), Vocabulary: uint64(d.VocabSize),
		Activations: uint64(d.Activations), Recomputed: uint64(d.Recomputed), Layer: uint64(d.Layer),
	}
}

// Options are the settings of a model's computation. The zero value computes in f32.
type Options struct {
	// Compute is the type of activations and of the copies of the weights for multiplication with
	// them: F32, BF16 (see torch.Engine.CheckBF16) or, on CUDA devices and without gradients, F16.
	// Weights and gradients are F32.
	Compute torch.DType
	// Recompute saves memory: it keeps few values for the backward pass and computes the rest a
	// second time.
	Recompute bool
}

// check refuses types that the device does not support.
func (o Options) check(device torch.Device) error {
	switch {
	case o.Compute == torch.F32, o.Compute == torch.BF16, o.Compute == torch.F16 && device != torch.CPU:
		return nil
	case o.Compute == torch.F16:
		return fmt.Errorf("%w: compute type f16 on the CPU; use f32 or bf16, or a CUDA device", errOption)
	}
	return fmt.Errorf("%w: compute type %s, want f32, bf16 or f16", errOption, o.Compute)
}

// architecture contains the functions of a model package.
type architecture struct {
	describe func(config []byte) (Description, error)
	init     func(config []byte, seed uint64, made func(numbers int64)) ([]safetensors.Tensor, error)
	new      func(ctx context.Context, e *torch.Engine, config []byte, o Options, tensors []safetensors.Tensor) (Model, error)
}

// architectures contains all models, by their names in "architectures" of config.json.
var architectures = func() map[string]architecture {
	all := map[string]architecture{deepseek.ArchitectureV2: deepSeek, deepseek.ArchitectureV3: deepSeek}
	for _, name := range llama.Architectures() {
		all[name] = dense
	}
	return all
}()

// dense is for Llama and the models that differ from it by few features, such as experts.
var dense = architecture{
	describe: func(config []byte) (Description, error) {
		c, err := llama.ParseConfig(config)
		if err != nil {
			return Description{}, err
		}
		return Description{
			Architecture: c.Architecture, VocabSize: c.VocabSize, MaxTokens: c.MaxPositionEmbeddings, NumParameters: llama.NumParameters(c),
			NumHidden: llama.NumHidden(c), Largest: llama.Largest(c), Experts: c.Experts.Count > 0, Activations: llama.Activations(c, false), Recomputed: llama.Activations(c, true), Layer: llama.LargestLayer(c),
		}, nil
	},
	init: func(config []byte, seed uint64, made func(int64)) ([]safetensors.Tensor, error) {
		c, err := llama.ParseConfig(config)
		if err != nil {
			return nil, err
		}
		return llama.Init(c, seed, made), nil
	},
	new: func(ctx context.Context, e *torch.Engine, config []byte, o Options, tensors []safetensors.Tensor) (Model, error) {
		c, err := llama.ParseConfig(config)
		if err != nil {
			return nil, err
		}
		m, err := llama.New(ctx, e, c, llama.Options(o), tensors)
		if err != nil {
			return nil, err
		}
		return m, nil
	},
}

var deepSeek = architecture{
	describe: func(config []byte) (Description, error) {
		c, err := deepseek.ParseConfig(config)
		if err != nil {
			return Description{}, err
		}
		return Description{
			Architecture: c.Architecture, VocabSize: c.VocabSize, MaxTokens: c.MaxPositionEmbeddings, NumParameters: deepseek.NumParameters(c),
			NumHidden: deepseek.NumHidden(c), Largest: deepseek.Largest(c), Experts: c.NumExperts > 0, Activations: deepseek.Activations(c, false), Recomputed: deepseek.Activations(c, true), Layer: deepseek.LargestLayer(c),
		}, nil
	},
	init: func(config []byte, seed uint64, made func(int64)) ([]safetensors.Tensor, error) {
		c, err := deepseek.ParseConfig(config)
		if err != nil {
			return nil, err
		}
		return deepseek.Init(c, seed, made), nil
	},
	new: func(ctx context.Context, e *torch.Engine, config []byte, o Options, tensors []safetensors.Tensor) (Model, error) {
		c, err := deepseek.ParseConfig(config)
		if err != nil {
			return nil, err
		}
		m, err := deepseek.New(ctx, e, c, deepseek.Options(o), tensors)
		if err != nil {
			return nil, err
		}
		return m, nil
	},
}

// Architectures returns the supported names, sorted.
func Architectures() []string { return slices.Sorted(maps.Keys(architectures)) }

// Describe parses a config.json and checks it.
func Describe(config []byte) (Description, error) {
	a, err := find(config)
	if err != nil {
		return Description{}, err
	}
	return a.describe(config)
}

// Init returns new weights for a config.json, sorted by name. The same seed gives the same weights.
func Init(config []byte, seed uint64) ([]safetensors.Tensor, error) {
	return InitWatched(config, seed, func(int64) {})
}

// InitWatched is Init with progress: it calls made after each tensor with the number of its values.
// Large models take minutes.
func InitWatched(config []byte, seed uint64, made func(numbers int64)) ([]safetensors.Tensor, error) {
	a, err := find(config)
	if err != nil {
		return nil, err
	}
	return a.init(config, seed, made)
}

// New creates the model of a config.json with the given weights on the engine.
func New(ctx context.Context, e *torch.Engine, config []byte, o Options, tensors []safetensors.Tensor) (Model, error) {
	a, err := find(config)
	if err != nil {
		return nil, err
	}
	if err := o.check(e.Device()); err != nil {
		return nil, err
	}
	return a.new(ctx, e, config, o, tensors)
}

func find(config []byte) (architecture, error) {
	var named struct {
		Architectures []string `json:"architectures"`
	}
	if err := hfconfig.Decode(config, &named); err != nil {
		return architecture{}, err
	}
	if len(named.Architectures) == 1 {
		if a, ok := architectures[named.Architectures[0]]; ok {
			return a, nil
		}
	}
	return architecture{}, fmt.Errorf("config.json: %w: architectures is %q, want one of: %s",
		errArchitecture, named.Architectures, strings.Join(Architectures(), ", "))
}
