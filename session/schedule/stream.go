package schedule

import "sync"

// stream queues the events of a request for its reader, without bound, so that a slow reader does
// not block the scheduler.
type stream struct {
	mu    sync.Mutex
	more  sync.Cond
	list  []event
	err   error
	ended bool
}

// event is a token, or a call with the number of prompt tokens prefilled.
type event struct {
	Token
	tokens int
	call   func(tokens int) // nil: a token
	fetch  bool             // call is that of Fetch
}

func newStream() *stream {
	s := &stream{}
	s.more.L = &s.mu
	return s
}

func (s *stream) put(e event) {
	s.mu.Lock()
	s.list = append(s.list, e)
	s.mu.Unlock()
	s.more.Signal()
}

// end ends the stream, with an error or nil.
func (s *stream) end(err error) {
	s.mu.Lock()
	s.err, s.ended = err, true
	s.mu.Unlock()
	s.more.Signal()
}

// take waits for events, and returns them in exchange for a used list; none means the end.
func (s *stream) take(used []event) ([]event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.list) == 0 && !s.ended {
		s.more.Wait()
	}
	list := s.list
	s.list = used[:0]
	if len(list) == 0 {
		return nil, s.err
	}
	return list, nil
}

// poll is take for a reader that does not wait; ended reports that nothing follows.
func (s *stream) poll(used []event) (list []event, ended bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, s.list = s.list, used[:0]
	return list, s.ended, s.err
}

// wait waits for the end of the stream.
func (s *stream) wait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.ended {
		s.more.Wait()
	}
}
