import type { HTMLAttributes, ReactElement, ReactNode } from 'react';
import type { Counts, Item, TidingsAttributes, TidingsInbox as TidingsElement } from 'tidings-inbox';

export type { Actor, Counts, FeedObject, Item, State } from 'tidings-inbox';

export interface TidingsInboxProps extends TidingsAttributes,
  Omit<HTMLAttributes<TidingsElement>, keyof TidingsAttributes | 'onError'> {
  /** Returns a user token. */
  getToken?: () => Promise<string> | string;
  /** Renders an item instead of the widget. */
  renderItem?: (item: Item) => ReactNode;
  onOpen?: (event: CustomEvent<undefined>) => void;
  /** The user chose an item. Prevent the default to follow the link yourself. */
  onItem?: (event: CustomEvent<Item>) => void;
  /** Items arrived, for toasts. */
  onNew?: (event: CustomEvent<Item[]>) => void;
  onCount?: (event: CustomEvent<Counts>) => void;
  onError?: (event: CustomEvent<Response | Error>) => void;
}

export function TidingsInbox(props: TidingsInboxProps): ReactElement;
