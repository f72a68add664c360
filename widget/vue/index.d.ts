import type { DefineSetupFnComponent, SlotsType, VNode } from 'vue';
import type { Counts, Item, TidingsAttributes } from 'tidings-inbox';

export type { Actor, Counts, FeedObject, Item, State } from 'tidings-inbox';

export interface TidingsInboxProps extends TidingsAttributes {
  /** Returns a user token. */
  getToken?: () => Promise<string> | string;
}

export type TidingsInboxEmits = {
  open: (event: CustomEvent<undefined>) => void;
  /** The user chose an item. Prevent the default to follow the link yourself. */
  item: (event: CustomEvent<Item>) => void;
  /** Items arrived, for toasts. */
  new: (event: CustomEvent<Item[]>) => void;
  count: (event: CustomEvent<Counts>) => void;
  error: (event: CustomEvent<Response | Error>) => void;
};

export type TidingsInboxSlots = SlotsType<{
  /** Renders an item instead of the widget. */
  item: (props: { item: Item }) => VNode[];
  default: () => VNode[];
}>;

export const TidingsInbox: DefineSetupFnComponent<TidingsInboxProps, TidingsInboxEmits, TidingsInboxSlots>;
