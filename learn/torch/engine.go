package torch

/*
#include "bind.h"
*/
import "C"

import (
	"context"
	"errors"
	"runtime"
	"sync"
)

// Engine runs all operations of one device on one OS thread. Its methods may be called from any
// goroutine.
type Engine struct {
	device Device
	calls  chan call
	quit   chan struct{} // closed by Close
	done   chan struct{} // closed when the goroutine has ended
	close  sync.Once
	thread C.uintptr_t

	// These fields are used on the engine's thread only.
	scope *Scope               // innermost scope of the Do in progress
	kept  map[*Tensor]struct{} // tensors that outlive their scope
}

type call struct {
	grad   bool
	run    func(*Scope) error
	result chan<- error // buffered
}

// NewEngine starts the goroutine of a device. Close stops it.
func NewEngine(device Device) (*Engine, error) { return NewEngineThreads(device, 0) }

// NewEngineThreads is like NewEngine, for one of several engines that share the CPUs. Its
// operations use the given number of threads; 0 means the number set in Load.
func NewEngineThreads(device Device, own int) (*Engine, error) {
	loading.Lock()
	info, loaded := loading.info, loading.done
	loading.Unlock()
	if !loaded {
		return nil, errNotLoaded
	}
	threads := info.Threads
	if own > 0 {
		threads = own
	}
	if device != CPU {
		if err := info.check(device); err != nil {
			return nil, err
		}
	}
	e := &Engine{
		device: device,
		calls:  make(chan call),
		quit:   make(chan struct{}),
		done:   make(chan struct{}),
		kept:   make(map[*Tensor]struct{}),
	}
	started := make(chan error, 1)
	go e.loop(threads, started)
	if err := <-started; err != nil {
		return nil, err
	}
	return e, nil
}

// Device returns the device of the engine's tensors.
func (e *Engine) Device() Device { return e.device }

// Do runs fn on the engine's thread, and records gradients if grad is set. It waits for fn and then
// frees every tensor that fn made and did not keep. It returns a panic in fn as an error: an *Error
// if libtorch refused an operation, else a *panicError.
//
// ctx bounds the wait for the engine. Once fn runs, Do waits for its end, because fn uses the
// caller's variables. A long fn should check ctx itself.
func (e *Engine) Do(ctx context.Context, grad bool, fn func(s *Scope) error) error {
	if C.pt_thread() == e.thread {
		select {
		case <-e.done: // the system reused the id of the engine's thread for another thread
			return ErrClosed
		default:
			return errNested
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	result := make(chan error, 1)
	select {
	case e.calls <- call{grad: grad, run: fn, result: result}:
		return <-result
	case <-ctx.Done():
		return ctx.Err()
	case <-e.done:
		return ErrClosed
	}
}

// Close waits for the Do in progress, frees all kept tensors and stops the engine's goroutine.
// Tensors of a closed engine must not be used.
func (e *Engine) Close() error {
	e.close.Do(func() { close(e.quit) })
	<-e.done
	return nil
}

func (e *Engine) loop(threads int, started chan<- error) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	defer close(e.done)
	e.thread = C.pt_thread()
	if message := C.pt_set_threads(C.int(threads)); message != nil {
		started <- &Error{Op: "set_threads", Message: text(message)}
		return
	}
	started <- nil
	defer e.freeKept()
	for {
		select {
		case c := <-e.calls:
			e.run(c)
		case <-e.quit:
			return
		}
	}
}

var errGoexit = errors.New("torch: the function given to Do ended its goroutine (runtime.Goexit, or FailNow of a test)")

// run executes one call. It sends the result last, after it has freed all tensors.
func (e *Engine) run(c call) {
	scope := newScope(e)
	e.scope = scope
	before := C.pt_grad_mode(flag(c.grad))
	err := errGoexit
	defer func() {
		if value := recover(); value != nil {
			err = recovered(value)
		}
		C.pt_grad_mode(before)
		e.scope = nil
		scope.free()
		c.result <- err
	}()
	err = c.run(scope)
}

func (e *Engine) freeKept() {
	for t := range e.kept {
		C.pt_free_tensors(&t.handle, 1)
		t.handle = nil
	}
	clear(e.kept)
}

// LiveTensors returns the number of tensor handles in the process that are not yet freed. It grows
// without bound only if tensors are kept and never freed.
func LiveTensors() int64 {
	if C.pt_functions == nil {
		return 0
	}
	return int64(C.pt_live_tensors())
}

func flag(on bool) C.int {
	if on {
		return 1
	}
	return 0
}
