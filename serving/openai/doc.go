// Package openai serves a model by the HTTP API of OpenAI: completions and chats,
// streamed or whole, for many clients at the same time. It is HTTP only: what shares steps
// is the model's scheduler (package session/schedule).
//
//	s, err := openai.New(m, openai.Options{})
//	if err != nil { … }
//	h := &http.Server{Addr: "127.0.0.1:8080", Handler: s, ReadHeaderTimeout: 10 * time.Second}
//	err = h.ListenAndServe()
//
// What a request gets is what it would get alone. A parameter that is not known, or
// known and not supported, is an error that names it; none is ignored.
package openai
