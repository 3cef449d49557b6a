package gossip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/psyche-go/psyche/identity"
	"github.com/psyche-go/psyche/p2p"
)

const (
	// MaxMessage is the largest message, in bytes.
	MaxMessage = 32 << 10

	maxTopicName = 128  // bytes
	buffered     = 1024 // messages that wait for the handler; more are dropped and counted
	remembered   = 8192 // messages remembered to recognise repetitions
)

// Errors of a topic.
var (
	ErrTooLarge = errors.New("gossip message too large")
	ErrTooMany  = errors.New("too many gossip messages")
	ErrClosed   = errors.New("gossip topic is closed")
	ErrName     = errors.New("invalid gossip topic name")
)

// Handler takes one message of another member. It runs in one goroutine of the topic,
// message after message, so it must not block for long and must not call Topic.Close.
// data belongs to the handler.
type Handler func(from identity.ID, data []byte)

// Topic is a joined topic.
type Topic struct {
	node    *p2p.Node
	router  *router
	name    string
	topic   *pubsub.Topic
	sub     *pubsub.Subscription
	handler Handler
	logger  *slog.Logger

	cancel context.CancelFunc
	done   chan struct{} // closed when the topic has been left and the handler is quiet
	err    error         // of leaving; valid after done
}

// Join takes part in a topic until Close, the end of ctx, or the end of the node. A node
// can join a topic once at a time.
func Join(ctx context.Context, n *p2p.Node, topic string, handler func(from identity.ID, data []byte)) (*Topic, error) {
	if topic == "" || len(topic) > maxTopicName {
		return nil, fmt.Errorf("join gossip topic %.40q…: %w: 1 to %d bytes", topic, ErrName, maxTopicName)
	}
	r, err := routerOf(n)
	if err != nil {
		return nil, fmt.Errorf("join gossip topic %q: %w", topic, err)
	}
	t := &Topic{
		node:    n,
		router:  r,
		name:    topic,
		handler: handler,
		logger:  n.Logger().With("topic", topic),
		done:    make(chan struct{}),
	}
	if err := t.subscribe(); err != nil {
		return nil, fmt.Errorf("join gossip topic %q: %w", topic, err)
	}
	ctx, t.cancel = context.WithCancel(ctx)
	go t.run(ctx)
	return t, nil
}

func (t *Topic) subscribe() (err error) {
	if err = t.router.pubsub.RegisterTopicValidator(t.name, t.validate, pubsub.WithValidatorInline(true)); err != nil {
		return err
	}
	if t.topic, err = t.router.pubsub.Join(t.name); err != nil {
		return errors.Join(err, t.router.pubsub.UnregisterTopicValidator(t.name))
	}
	if t.sub, err = t.topic.Subscribe(pubsub.WithBufferSize(buffered)); err != nil {
		return errors.Join(err, t.leave())
	}
	if err = t.topic.SetScoreParams(topicScore()); err != nil {
		return errors.Join(err, t.leave())
	}
	t.router.joined(t.name)
	return nil
}

// validate decides whether a message is delivered and passed on. Its signature has been
// checked before.
func (t *Topic) validate(_ context.Context, _ peer.ID, m *pubsub.Message) pubsub.ValidationResult {
	if len(m.GetData()) > MaxMessage {
		return pubsub.ValidationReject
	}
	// A member that others know already and we do not is no offence of who passed it on.
	if !t.node.Allows(m.GetFrom()) {
		return pubsub.ValidationIgnore
	}
	// Nor is it one to pass on what others say too often.
	if !t.router.admits(m.GetFrom(), m.GetSeqno()) {
		t.router.excess.Add(1)
		return pubsub.ValidationIgnore
	}
	return pubsub.ValidationAccept
}

// run delivers messages until the topic, its context or the node ends, then leaves.
func (t *Topic) run(ctx context.Context) {
	defer close(t.done)
	defer context.AfterFunc(t.router.ctx, t.cancel)()
	t.deliver(ctx)
	t.cancel()
	// When the node has ended, there is nothing left to leave.
	if err := t.leave(); err != nil && t.router.ctx.Err() == nil {
		t.err = fmt.Errorf("leave gossip topic %q: %w", t.name, err)
	}
}

func (t *Topic) deliver(ctx context.Context) {
	seen := newRecent(remembered)
	for {
		m, err := t.sub.Next(ctx)
		if err != nil {
			return
		}
		from, ok := p2p.Identity(m.GetFrom())
		if !ok || from == t.node.ID() || !t.node.Allows(m.GetFrom()) || !seen.add(from, m.GetData()) {
			continue
		}
		t.call(from, m.GetData())
	}
}

// call contains a panic of the handler: a message that trips it must not end the node.
func (t *Topic) call(from identity.ID, data []byte) {
	defer func() {
		if p := recover(); p != nil {
			t.logger.Error("gossip: handler panicked", "from", from.Short(), "panic", p, "stack", string(debug.Stack()))
		}
	}()
	t.handler(from, data)
}

// Publish sends data to the members that have joined the topic. It refuses what is over
// MaxMessage, and more than 20 messages a second after 256 at once, on all topics of the
// node together: the network would drop that without a word. No error does not mean that
// anybody received it; the node's own handler never does.
func (t *Topic) Publish(ctx context.Context, data []byte) error {
	if len(data) > MaxMessage {
		return fmt.Errorf("publish %d bytes on %q: %w: at most %d bytes", len(data), t.name, ErrTooLarge, MaxMessage)
	}
	select {
	case <-t.done:
		return fmt.Errorf("publish on %q: %w", t.name, ErrClosed)
	default:
	}
	// The library keeps the slice until the message has left.
	if err := t.topic.Publish(ctx, slices.Clone(data)); err != nil {
		if refused, ok := errors.AsType[pubsub.ValidationError](err); ok && refused.Reason == pubsub.RejectValidationIgnored {
			err = fmt.Errorf("%w: at most %d in a second, after %d", ErrTooMany, authorPerSecond, authorBurst)
		}
		return fmt.Errorf("publish on %q: %w", t.name, err)
	}
	return nil
}

// Peers returns the members known to have joined the topic.
func (t *Topic) Peers() []identity.ID {
	var ids []identity.ID
	for _, p := range t.topic.ListPeers() {
		if id, ok := p2p.Identity(p); ok && t.node.Allows(p) {
			ids = append(ids, id)
		}
	}
	return ids
}

// Close leaves the topic and waits for the handler to return. Later calls return the
// first one's result.
func (t *Topic) Close() error {
	t.cancel()
	<-t.done
	return t.err
}

func (t *Topic) leave() error {
	t.router.left(t.name)
	if t.sub != nil {
		t.sub.Cancel()
	}
	return errors.Join(t.router.pubsub.UnregisterTopicValidator(t.name), t.topic.Close())
}
