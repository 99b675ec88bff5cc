package schedule

import "sync"

// stream brings what the steps gave to the one who reads it. It holds all that was not
// read yet, at most a number per token, so that a slow reader keeps nobody waiting.
type stream struct {
	mu    sync.Mutex
	more  sync.Cond
	list  []event
	err   error
	ended bool
}

// event is a token, or how much of the prompt has been read and who is to be told.
type event struct {
	Token
	read int
	tell func(read int) // nil: a token
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

// end says that nothing follows; the error is nil where all is well.
func (s *stream) end(err error) {
	s.mu.Lock()
	s.err, s.ended = err, true
	s.mu.Unlock()
	s.more.Signal()
}

// take waits for what there is and exchanges it for memory that was read; nothing means
// the end.
func (s *stream) take(read []event) ([]event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.list) == 0 && !s.ended {
		s.more.Wait()
	}
	list := s.list
	s.list = read[:0]
	if len(list) == 0 {
		return nil, s.err
	}
	return list, nil
}

// wait waits for the end.
func (s *stream) wait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.ended {
		s.more.Wait()
	}
}
