// Declares <tidings-inbox> for JSX in React 19: import type {} from 'tidings-inbox/jsx';
import type { DetailedHTMLProps, HTMLAttributes } from 'react';
import type { TidingsAttributes, TidingsInbox } from './widget.js';

declare module 'react' {
  namespace JSX {
    interface IntrinsicElements {
      'tidings-inbox': DetailedHTMLProps<HTMLAttributes<TidingsInbox>, TidingsInbox> & TidingsAttributes;
    }
  }
}
